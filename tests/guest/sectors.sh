#!/bin/bash
# Shows that what is acknowledged is on the medium of a disk with logical sectors of 4096 bytes and
# without a write cache: there the kernel sends no flushes, and the page cache must not be used. A
# guest writes through a volume on such a disk, large and small, with a checkpoint, and then loses
# its power: whatever was only in its page cache is gone. The next guest reads.
#
#   tests/guest/sectors.sh        (make guest)
#
# Needs Debian, or a kernel in MANYLOGS_GUEST_KERNEL: a directory with boot/vmlinuz-* and lib/modules.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh

initramfs() {
    local root=$work/root
    root_with_modules "$root" fuse
    with_libraries "$root" "$manylogs" dd
    # Of the same name as busybox's, which has no direct I/O.
    mv "$root/bin/dd" "$root/bin/dd-gnu"
    cp tests/guest/sectors-init.sh "$root/init"
    chmod +x "$root/init"
    head -c 1M /dev/urandom >"$root/large"
    head -c 1536 /dev/urandom >"$root/small"
    pack "$root"
}

tools unxz=xz-utils
kernel linux-image-cloud-amd64 "${MANYLOGS_GUEST_KERNEL:-$out/kernel}" || {
    say "skipped: no package linux-image-cloud-amd64 (offline? run apt-get update)"
    exit 0
}
build
truncate -s 256M "$work/disk.img"
initramfs
guest_options=(-global virtio-blk-device.logical_block_size=4096
    -global virtio-blk-device.physical_block_size=4096
    -global virtio-blk-device.write-cache=off)
for turn in write read; do
    boot_guest "${MANYLOGS_GUEST_SECONDS:-300}" 768 "turn=$turn" "file=$work/disk.img"
    verdict "guest that is to $turn" passed
done
say "passed: sectors of 4096 bytes"
