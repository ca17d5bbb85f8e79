#!/bin/bash
# The tests with a guest kernel (make guest): a drained disk without this software, volumes served
# through modules that few kernels have, and a disk with large sectors that loses its power.
#
#   tests/guest/run.sh [SEED]
set -euo pipefail
cd "$(dirname "$0")"
./drained.sh "${1:-1}"
./served.sh
./sectors.sh
