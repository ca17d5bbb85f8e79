#!/bin/bash
# Power cuts under ext4 on a served volume, with the kernel's own tools: in a guest dm-log-writes
# logs what reaches the disk, and the host replays it to each flush; dm-flakey drops and fails
# writes under a running server.
#
#   tests/guest/crash.sh [loop] [ublk]        (make guest-crash)
#
# Needs Debian with a 6.12 kernel for the cloud, or one in MANYLOGS_UBLK_KERNEL: a directory with
# boot/vmlinuz-* and lib/modules. STATES limits the states that are checked of each log. BUILT names
# a directory like target/release in which everything is built already.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh
[ $# -gt 0 ] || set -- loop ublk

initramfs() {
    local root=$work/root-$1-$2
    root_with_modules "$root" dax dm-mod dm-log-writes dm-flakey fuse loop ublk_drv
    mkdir -p "$root/real" "$root/etc"
    with_libraries "$root" mke2fs e2fsck dmsetup losetup "$manylogs"
    # Named in full in the guest: its shell takes its own of the same name.
    mv "$root"/bin/{mke2fs,e2fsck,dmsetup,losetup,manylogs} "$root/real/"
    cp /etc/mke2fs.conf "$root/etc/"
    cp tests/guest/crash/*.sh "$root/"
    mv "$root/init.sh" "$root/init"
    chmod +x "$root/init"
    echo "$1" >"$root/check"
    echo "$2" >"$root/front"
    pack "$root"
}

# Settings that make the volume fill its logs, and move what they hold, all the time.
volume() {
    rm -f "$work/disk.img"
    "$manylogs" format "$work/disk.img" --size 96M --sparse --log 512K --group 4M --threshold 32K
    "$manylogs" set "$work/disk.img" checkpoint=every:2s buffer-age=200ms snapshot=3s >/dev/null
}

# check NAME FRONT: boots the guest.
check() {
    volume
    cp --sparse=always "$work/disk.img" "$work/before.img"
    rm -f "$work/log.img"
    truncate -s 2G "$work/log.img"
    initramfs "$1" "$2"
    boot_guest "${MANYLOGS_GUEST_SECONDS:-900}" 768 "" "file=$work/disk.img" "file=$work/log.img"
    verdict "guest, $1, $2" passed
}

tools dmsetup=dmsetup losetup=mount debugfs=e2fsprogs unxz=xz-utils
kernel linux-image-6.12-cloud-amd64 "${MANYLOGS_UBLK_KERNEL:-$out/kernel-ublk}" || {
    say "skipped: no package linux-image-6.12-cloud-amd64 (offline? run apt-get update)"
    exit 0
}
build
[ -n "${BUILT:-}" ] ||
    cargo build -q --release --locked --package manylogs-medium --example replay_writes
for front; do
    check log "$front"
    "$built/examples/replay_writes" "$work/log.img" "$work/before.img" "$manylogs" "${STATES:-200}"
    "$manylogs" check "$work/disk.img"
    check flakey "$front"
    "$manylogs" check "$work/disk.img"
done
say "passed: $*"
