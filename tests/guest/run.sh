#!/bin/bash
# The tests with a guest kernel (make guest): a drained disk without this software, volumes served
# through modules that few kernels have, a disk with large sectors that loses its power, and MLFS
# with a kernel that lacks what newer ones have.
#
#   tests/guest/run.sh [SEED]
set -euo pipefail
cd "$(dirname "$0")"
./drained.sh "${1:-1}"
./served.sh
./sectors.sh
./mlfs.sh
