#!/bin/bash
# The tests with a guest kernel (make guest): a drained disk without this software, and volumes
# served through modules that few kernels have.
#
#   tests/guest/run.sh [SEED]
set -euo pipefail
cd "$(dirname "$0")"
./drained.sh "${1:-1}"
./served.sh
