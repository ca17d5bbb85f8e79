#!/bin/bash
# Shows that a drained disk is readable without this software: an ext4 file system is put onto a
# volume through the engine, so that a good part of it is in the logs; the volume is drained; and a
# guest kernel that has only device-mapper puts it together, checks every file, and writes to it.
# Before the drain the same guest must not find the data: else the test would show nothing.
#
#   tests/guest/run.sh [SEED]        (make guest)
#
# Needs Debian, or a kernel in MANYLOGS_GUEST_KERNEL: a directory with boot/vmlinuz-* and lib/modules.
set -euo pipefail
cd "$(dirname "$0")/../.."
seed=${1:-1}
target=${CARGO_TARGET_DIR:-target}
out=$target/guest
manylogs=$target/release/manylogs
copy_in=$target/release/examples/copy_in
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$out"
work=$(mktemp -d "$out/run.XXXXXX")
trap 'rm -rf "$work"' EXIT
# shellcheck disable=SC1091
source tests/guest/lib.sh

# A program and the libraries it asks for.
with_libraries() {
    local root=$1 program file
    shift
    for program; do
        file=$(command -v "$program")
        cp "$file" "$root/bin/"
        ldd "$file" | grep -o '/[^ ]*' | while read -r library; do
            mkdir -p "$root$(dirname "$library")"
            cp -Ln "$library" "$root$library"
        done
    done
}

initramfs() {
    local root=$work/root
    initramfs_root "$root" dax dm-mod
    with_libraries "$root" dmsetup e2fsck
    cp tests/guest/init.sh "$root/init"
    chmod +x "$root/init"
    cp "$work/table" "$work/sums" "$work/whole" "$root/"
    echo "$1" >"$root/mode"
}

# Boots the guest with the disk as /dev/vda; prints what it says.
look() {
    initramfs "$1"
    local snapshot=off
    [ "$1" = before ] && snapshot=on
    boot 300 "" -m 512 -drive "file=$work/disk.img,format=raw,if=virtio,snapshot=$snapshot"
    verdict "$1 the drain" "$2"
}

tools qemu-system-x86_64=qemu-system-x86 busybox=busybox-static dmsetup=dmsetup \
    mke2fs=e2fsprogs cpio=cpio
kernel
cargo build -q --release --locked --package manylogs-cli
cargo build -q --release --locked --package manylogs-storage --example copy_in
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
look before "data is not there"
"$manylogs" drain "$work/disk.img"
"$manylogs" status "$work/disk.img" | grep -q drained || die "not drained"
mv "$work/table" "$work/table-before"
"$manylogs" table "$work/disk.img" "${name[@]}" >"$work/table"
cmp "$work/table-before" "$work/table"
look after "data is there"
say "passed"
