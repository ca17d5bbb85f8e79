#!/bin/bash
# Shows that a drained disk is readable without this software: an ext4 file system is put onto a
# volume through the engine, so that a good part of it is in the logs; the volume is drained; and a
# guest kernel that has only device-mapper puts it together, checks every file, and writes to it.
# Before the drain the same guest must not find the data: else the test would show nothing.
#
#   tests/guest/drained.sh [SEED]        (make guest)
#
# Needs Debian, or a kernel in MANYLOGS_GUEST_KERNEL: a directory with boot/vmlinuz-* and lib/modules.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh
seed=${1:-1}

initramfs() {
    local root=$work/root mode=$1
    root_with_modules "$root" dax dm-mod
    with_libraries "$root" dmsetup e2fsck
    cp tests/guest/drained-init.sh "$root/init"
    chmod +x "$root/init"
    cp "$work/table" "$work/sums" "$work/whole" "$root/"
    echo "$mode" >"$root/mode"
    pack "$root"
}

# Prints what the guest says of a disk that is as it was $1 the drain.
boot() {
    initramfs "$1"
    local snapshot=off
    [ "$1" = before ] && snapshot=on
    boot_guest 300 512 "" "file=$work/disk.img,snapshot=$snapshot"
    verdict "guest, $1 the drain" "$2"
}

tools dmsetup=dmsetup
kernel linux-image-cloud-amd64 "${MANYLOGS_GUEST_KERNEL:-$out/kernel}" ||
    die "no package linux-image-cloud-amd64: run apt-get update"
build
file_system $((320 << 20))
"$manylogs" format "$work/disk.img" --size 512M --sparse
"$copy_in" "$work/plain.img" "$work/disk.img" "$seed"
"$manylogs" status "$work/disk.img"
# Bytes at risk count zeroed space too, of which the logs hold no bytes.
for of in at_risk_bytes log_bytes_used; do
    bytes=$("$manylogs" status "$work/disk.img" --json | sed -n "s/.*\"$of\": \([0-9]*\).*/\1/p")
    [ "$bytes" -gt $((8 << 20)) ] || die "$of is only $bytes"
done
name=(--dm --device-name /dev/vda)
"$manylogs" table "$work/disk.img" "${name[@]}" --force >"$work/table"
boot before "data is not there"
"$manylogs" drain "$work/disk.img"
"$manylogs" status "$work/disk.img" | grep -q drained || die "not drained"
mv "$work/table" "$work/table-before"
"$manylogs" table "$work/disk.img" "${name[@]}" >"$work/table"
cmp "$work/table-before" "$work/table"
boot after "data is there"
say "passed"
