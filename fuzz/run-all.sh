#!/bin/bash
# Runs every fuzz target for a while: fuzz/run-all.sh [SECONDS_EACH]
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}
for target in $(cargo +nightly fuzz list); do
    echo "== $target"
    cargo +nightly fuzz run "$target" -- -max_total_time="$seconds" -verbosity=0 \
        -print_final_stats=1
done
