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
image_bytes=$((320 << 20))
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$out"
work=$(mktemp -d "$out/run.XXXXXX")
trap 'rm -rf "$work"' EXIT

say() { echo "guest: $*"; }
die() {
    say "FAILED: $*"
    exit 1
}

tools() {
    local need=()
    command -v qemu-system-x86_64 >/dev/null || need+=(qemu-system-x86)
    command -v busybox >/dev/null && ldd "$(command -v busybox)" >/dev/null 2>&1 &&
        need+=(busybox-static)
    command -v busybox >/dev/null || need+=(busybox-static)
    command -v dmsetup >/dev/null || need+=(dmsetup)
    command -v mke2fs >/dev/null || need+=(e2fsprogs)
    command -v cpio >/dev/null || need+=(cpio)
    [ ${#need[@]} = 0 ] || sh tools/install.sh "${need[@]}"
}

# A cloud kernel of Debian, unpacked and not installed.
kernel() {
    kernel=${MANYLOGS_GUEST_KERNEL:-$out/kernel}
    compgen -G "$kernel/boot/vmlinuz-*" >/dev/null && return
    local package
    package=$(apt-cache depends linux-image-cloud-amd64 |
        sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$package" ] || die "no package linux-image-cloud-amd64: run apt-get update"
    say "downloading $package"
    mkdir -p "$kernel"
    (cd "$kernel" && apt-get download -q "$package" && dpkg-deb -x "$package"_*.deb .)
}

# Files of many sizes, and their checksums.
file_system() {
    local files=$work/files n=0 size
    mkdir "$files"
    for size in $(seq 1 260) $(seq 1000 777 90000) $(seq 300000 500000 6000000) 10000000; do
        n=$((n + 1))
        mkdir -p "$files/dir$((n % 17))"
        random_text "$n" "$size" >"$files/dir$((n % 17))/file$n"
    done
    (cd "$files" && find . -type f | sort | xargs sha256sum) >"$work/sums"
    truncate -s "$image_bytes" "$work/plain.img"
    mke2fs -q -t ext4 -L drained -d "$files" "$work/plain.img"
    echo "$(sha256sum <"$work/plain.img" | cut -d ' ' -f 1) $((image_bytes >> 20))" >"$work/whole"
    say "ext4 of $((image_bytes >> 20)) MiB: $n files, $(du -sm "$files" | cut -f 1) MB"
}

# Repeatable bytes: as many as asked for of a generator that the seed and a number start.
random_text() {
    awk -v seed="$seed$1" -v size="$2" 'BEGIN {
        srand(seed)
        while (size > 0) {
            line = sprintf("%.12f%.12f%.12f%.12f\n", rand(), rand(), rand(), rand())
            printf "%s", substr(line, 1, size)
            size -= length(line)
        }
    }'
}

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
    local root=$work/root mode=$1 name
    mkdir -p "$root"/{bin,proc,sys,dev,modules}
    cp "$(command -v busybox)" "$root/bin/busybox"
    with_libraries "$root" dmsetup e2fsck
    for name in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci \
        virtio_blk dax dm-mod; do
        find "$kernel/lib/modules" -name "$name.ko" -exec cp {} "$root/modules/" \;
    done
    cp tests/guest/init.sh "$root/init"
    chmod +x "$root/init"
    cp "$work/table" "$work/sums" "$work/whole" "$root/"
    echo "$mode" >"$root/mode"
    (cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"
}

# Boots the guest with the disk as /dev/vda; prints what it says. KVM is not used: a machine that
# runs tests is often a guest itself.
boot() {
    initramfs "$1"
    local snapshot=off
    [ "$1" = before ] && snapshot=on
    timeout 300 qemu-system-x86_64 -accel tcg -m 512 -nographic -no-reboot \
        -kernel "$kernel"/boot/vmlinuz-* -initrd "$work/initramfs" \
        -append 'console=ttyS0 quiet panic=-1' \
        -drive "file=$work/disk.img,format=raw,if=virtio,snapshot=$snapshot" </dev/null \
        >"$work/console" 2>&1 || die "the guest did not end: $(tail -n 5 "$work/console")"
    tr -d '\r' <"$work/console" | grep -aoE '(SEEN|VERDICT:) .*' |
        sed "s/^SEEN //; s/^/guest, $1 the drain: /"
    grep -aq "VERDICT: $2" "$work/console" || die "$(tail -n 20 "$work/console")"
}

tools
kernel
cargo build -q --release --locked --package manylogs-cli
cargo build -q --release --locked --package manylogs-storage --example copy_in
file_system
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
