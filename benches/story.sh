#!/bin/bash
# The operator's story of README.md on one machine: a drive that is known by its data sheet, its
# load recorded by the kernel's tracepoints, the advice, and the volume that it names. The disk is a
# file of 8 GB, served as a loop device that is as slow as the drive; its load is fio's, a stream of
# 1 MiB beside small durable writes at a fixed rate. Prints each command and what it said.
#
#   sudo benches/story.sh MANYLOGS [SECONDS]
#
# Needs root, tracefs, fio, mkfs.ext4 and 8 GB for the file, sparse, in $WORK_BASE (/var/tmp).
set -euo pipefail

program=$(readlink -f "$1")
seconds=${2:-60}
for tool in fio mkfs.ext4 mount umount truncate; do
    command -v "$tool" >/dev/null || { echo "story: needs $tool" >&2; exit 1; }
done
[ "$(id -u)" = 0 ] || { echo "story: needs root (loop device, mount, tracefs)" >&2; exit 1; }
work=$(mktemp -d "${WORK_BASE:-/var/tmp}/manylogs-story.XXXXXX")
cd "$work"
mkdir bin mnt
ln -s "$program" bin/manylogs
export PATH=$work/bin:$PATH MANYLOGS_DRIVES=$work/drives
disk=$work/disk
server=

clean_up() {
    status=$?
    trap - EXIT
    set +e
    mountpoint -q mnt && umount mnt
    [ -z "$server" ] || { manylogs stop disk.img >/dev/null 2>&1; wait "$server"; }
    cd /
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT

# Prints a command and runs it.
say() {
    echo "\$ $*"
    "$@"
}

say manylogs drive new backup-1 --capacity 18T --rpm 7200 --outer 270 --inner 130 --seek 8.5

# The disk, as slow as that drive, with a file system and the file that a stream reads.
truncate -s 8G disk.img
manylogs serve disk.img --loop --raw --emulate backup-1 --link "$disk" >served 2>served.log &
server=$!
until [ -e "$disk" ]; do sleep 0.2; kill -0 "$server"; done
mkfs.ext4 -q -E lazy_itable_init=0,lazy_journal_init=0 "$disk"
mount -o noatime "$disk" mnt
fio --name=prepare --directory=mnt --rw=write --bs=4M --size=3G --end_fsync=1 --output=prepared
sync
echo 3 >/proc/sys/vm/drop_caches

fio --directory=mnt --time_based --runtime=$((seconds + 10)) --output=fio.txt \
    --name=prepare --rw=read --bs=1M --size=3G --direct=1 --rate=60m \
    --name=pages --rw=randwrite --bs=8k --size=512M --direct=1 --fdatasync=1 --rate_iops=12 \
    --name=more --rw=randwrite --bs=4k --size=512M --direct=1 --fdatasync=1 --rate_iops=12 &
load=$!
sleep 4
say manylogs record "$(readlink -f "$disk")" --seconds "$seconds" -o server.trace
wait "$load"
umount mnt
say manylogs trace stat server.trace
say manylogs advise server.trace --fit --drive backup-1
manylogs stop disk.img >/dev/null
wait "$server" || true
server=
say manylogs format disk.img --drive backup-1 --group 100M --force
