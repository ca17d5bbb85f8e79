#!/usr/bin/env bash
# The effect on real file systems (seed 000, Fig. 2): a sequential reader beside a process that
# rewrites 4 KiB in each of 20 files and syncs the file system, on an emulated drive, with the
# volume and without. RATES are small writes a second; there is a sync for 20 of them.
#
#   benches/effect.sh [DRIVE] [IMAGE_SIZE] [SECONDS] [RATES] [FILE_SYSTEMS]
#   benches/effect.sh cheetah-15k5 12G 30 "40 80 160 320" "ext4-ordered ext4-journal xfs"
#
# Needs root, fio, FUSE, loop devices and as much memory as is written. Prints a line for each run:
# the share of the reader's own bandwidth that it keeps, mean and 99th percentile of the syncs.
set -euo pipefail
cd "$(dirname "$0")/.."

drive=${1:-cheetah-15k5}
size=${2:-12G}
seconds=${3:-30}
rates=${4:-40 80 160 320}
file_systems=${5:-ext4-ordered ext4-journal xfs}
manylogs=${MANYLOGS:-${CARGO_TARGET_DIR:-target}/release/manylogs}
kind=${KIND:-read}
journal_mib=${JOURNAL_MIB:-1024}

for tool in fio losetup mkfs.ext4 mkfs.xfs python3; do
    command -v "$tool" >/dev/null || { echo "effect.sh: $tool is missing" >&2; exit 1; }
done
[ -x "$manylogs" ] || { echo "effect.sh: build first: cargo build --release" >&2; exit 1; }

place=$(mktemp -d /dev/shm/manylogs-effect.XXXXXX)
mkdir "$place/mnt"
clean() {
    mountpoint -q "$place/mnt" && umount "$place/mnt"
    "$manylogs" stop --force "$place/disk.img" >/dev/null 2>&1 || true
    rm -rf "$place"
}
trap clean EXIT

# serve raw|volume: prints the device.
serve() {
    rm -f "$place/disk.img"
    if [ "$1" = raw ]; then
        truncate -s "$size" "$place/disk.img"
        set -- --raw
    else
        "$manylogs" format "$place/disk.img" --size "$size" --sparse --physical-sector 4096 \
            >/dev/null
        set --
    fi
    "$manylogs" serve "$place/disk.img" --loop --emulate "$drive" "$@" \
        >"$place/device" 2>"$place/served" &
    for _ in $(seq 100); do
        [ -s "$place/device" ] && break
        sleep 0.1
    done
    [ -s "$place/device" ] || { cat "$place/served" >&2; exit 1; }
}

make_fs() {
    local device=$1
    case $2 in
        ext4-*)
            mkfs.ext4 -q -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 \
                -J size="$journal_mib" "$device"
            mount -o "data=${2#ext4-}" "$device" "$place/mnt"
            ;;
        xfs)
            mkfs.xfs -q -K "$device"
            mount "$device" "$place/mnt"
            ;;
    esac
}

prepare() {
    fio --name=big --filename="$place/mnt/big" --rw=write --bs=1M --size=2G --direct=1 \
        --output=/dev/null
    # The files lie among others, all over the disk.
    for i in $(seq 20); do
        fallocate -l "$((i % 4 * 50 + 50))M" "$place/mnt/spacer$i"
        dd if=/dev/zero of="$place/mnt/small$i" bs=1M count=4 status=none
    done
    sync -f "$place/mnt"
}

# run RATE|0: the reader, and beside it the writer.
run() {
    fio --time_based --runtime="$seconds" --output-format=json --output="$place/fio.json" \
        --name=big --filename="$place/mnt/big" --rw="$kind" --bs=1M --direct=1 >/dev/null &
    local reader=$!
    [ "$1" = 0 ] || benches/small-writer.py "$place/mnt" "$1" "$seconds" >"$place/small.json"
    wait "$reader"
    "$manylogs" status "$place/disk.img" --json >"$place/status.json"
    python3 - "$place" "$1" "$kind" <<'PYTHON'
import json, sys
place, rate, kind = sys.argv[1], int(sys.argv[2]), sys.argv[3]
bandwidth = json.load(open(f"{place}/fio.json"))["jobs"][0][kind]["bw_bytes"] / 1e6
late = json.load(open(f"{place}/status.json"))["emulation"]
if rate == 0:
    json.dump(bandwidth, open(f"{place}/alone.json", "w"))
alone = json.load(open(f"{place}/alone.json"))
line = f"{rate:>6} {bandwidth:>9.1f} {100 * bandwidth / alone:>7.1f}"
if rate:
    small = json.load(open(f"{place}/small.json"))
    line += f" {small['writes_per_s']:>9.1f} {small['mean_ms']:>9.2f} {small['p99_ms']:>9.2f}"
else:
    line += f" {'-':>9} {'-':>9} {'-':>9}"
late_ms = late["lateness"]["p99_us"] / 1e3
print(line + f" {late_ms:>9.3f}" + (" VOID" if late["void"] else ""))
PYTHON
}

echo "# $drive, $size, ${kind}er beside small synced writes, $seconds s each"
for fs in $file_systems; do
    for what in raw volume; do
        echo "# $fs on $what"
        echo "# rate      MB/s    kept %   small/s   mean ms    p99 ms   late ms"
        serve "$what"
        device=$(cat "$place/device")
        make_fs "$device" "$fs"
        prepare
        for rate in 0 $rates; do
            run "$rate"
        done
        umount "$place/mnt"
        "$manylogs" stop "$place/disk.img" >/dev/null
        wait
    done
done
