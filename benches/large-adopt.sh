#!/bin/bash
# Adopts, uses and releases sparse images of large disks, and has e2fsck judge them.
#
#   benches/large-adopt.sh [BYTES...]     (1 TB and 20 TB; needs FUSE, mkfs.ext4, e2fsck, GNU time)
#
# From the environment:
#   MANYLOGS   the program (target/release/manylogs)
#   PLACE      where the images are: a file system for large sparse files (/dev/shm)
set -euo pipefail
manylogs=$(realpath "${MANYLOGS:-target/release/manylogs}")
source=$(realpath "$(dirname "$0")/..")/crates/filesystems/near
work=$(mktemp -d "${PLACE:-/dev/shm}/large-adopt.XXXXXX")
image=$work/disk.img
mounted=$work/mounted
PATH=$PATH:/usr/sbin:/sbin
[ $# -gt 0 ] || set -- 1000000000000 20000000000000

clean_up() {
    ! mountpoint --quiet "$mounted" || "$manylogs" fs unmount "$mounted" || true
    rm -rf "$work"
}
trap clean_up EXIT

timed() { command time --format "  $1: %e s, %M KiB" "${@:2}"; }

for size in "$@"; do
    echo "$size bytes"
    rm -f "$image"
    truncate --size "$size" "$image"
    mkfs.ext4 -q -F -E lazy_itable_init=1,lazy_journal_init=1 "$image"
    timed adopt "$manylogs" fs adopt --yes "$image"
    timed check "$manylogs" fs check "$image"
    mkdir -p "$mounted"
    timed mount "$manylogs" fs mount --background "$image" "$mounted"
    cp -r "$source" "$mounted/"
    sync --file-system "$mounted"
    diff -r "$source" "$mounted/near"
    "$manylogs" fs unmount "$mounted"
    timed release "$manylogs" fs release "$image"
    timed e2fsck e2fsck -fn "$image"
done
