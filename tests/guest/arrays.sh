#!/bin/bash
# Shows volumes on arrays of the kernel: in a guest md makes a RAID-0, 10, 5 or 6 of four disks, or
# LVM or device-mapper make stripes of them, the volume on it learns its shape, and ext4 lies on the
# served volume. A small durable write touches one column (all members, where there is parity), the
# server is killed, the guest's power is cut, and in the end the drained volume is read through
# device-mapper alone.
#
#   [CUTS=N] tests/guest/arrays.sh [LEVEL...]        (make guest-arrays)
#
# LEVEL is raid0, raid10, striped (device-mapper alone), lvm (stripes by lvcreate), raid5 or raid6.
# With -short behind raid10, raid5 or raid6 a member is removed after the power cut, before the
# array is put together again. CUTS is the number of power cuts of each LEVEL, 1 when it is not given;
# they come at different moments. CUT is the number of a single one to repeat.
#
# Needs Debian with a 6.12 kernel for the cloud, or one in MANYLOGS_UBLK_KERNEL: a directory with
# boot/vmlinuz-* and lib/modules. BUILT names a directory like target/release in which everything
# is built already.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh
[ $# -gt 0 ] || set -- raid0 raid10 striped lvm raid5-short raid6-short

initramfs() {
    local root=$work/root-$1-$2
    root_with_modules "$root" dax dm-mod md-mod raid0 raid10 fuse loop libcrc32c xor raid6_pq \
        async_tx async_memcpy async_xor async_pq async_raid6_recov raid456
    mkdir -p "$root/real" "$root/etc"
    with_libraries "$root" mke2fs e2fsck dmsetup losetup mdadm dd "$manylogs"
    [ "$1" != lvm ] || with_libraries "$root" lvm
    [ "$1" != lvm ] || mv "$root/bin/lvm" "$root/real/"
    # Named in full in the guest: its shell takes its own of the same name.
    mv "$root"/bin/{mke2fs,e2fsck,dmsetup,losetup,mdadm,dd,manylogs} "$root/real/"
    cp /etc/mke2fs.conf "$root/etc/"
    cp tests/guest/arrays/init.sh "$root/init"
    chmod +x "$root/init"
    echo "$1" >"$root/level"
    echo "$2" >"$root/turn"
    echo "$3" >"$root/cut"
    pack "$root"
}

# check LEVEL CUT: one guest until its power is cut, and one after that.
check() {
    local n disks=()
    for n in 1 2 3 4; do
        rm -f "$work/disk$n.img"
        truncate -s 160M "$work/disk$n.img"
        disks+=("file=$work/disk$n.img")
    done
    # What the guest must not lose, outside of the array.
    rm -f "$work/keep.img"
    truncate -s 16M "$work/keep.img"
    disks+=("file=$work/keep.img")
    initramfs "$1" before "$2"
    boot_guest "${MANYLOGS_GUEST_SECONDS:-900}" 768 "" "${disks[@]}"
    verdict "guest, $1, cut $2" "power cut"
    initramfs "$1" after "$2"
    boot_guest "${MANYLOGS_GUEST_SECONDS:-900}" 768 "" "${disks[@]}"
    verdict "guest, $1, after cut $2" passed
}

lvm=()
case " $* " in *" lvm "*) lvm=(lvm=lvm2) ;; esac
tools dmsetup=dmsetup losetup=mount mdadm=mdadm unxz=xz-utils "${lvm[@]}"
kernel linux-image-6.12-cloud-amd64 "${MANYLOGS_UBLK_KERNEL:-$out/kernel-ublk}" || {
    say "skipped: no package linux-image-6.12-cloud-amd64 (offline? run apt-get update)"
    exit 0
}
build
for level; do
    for cut in ${CUT:-$(seq "${CUTS:-1}")}; do check "$level" "$cut"; done
done
say "passed: $*"
