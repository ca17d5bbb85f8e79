#!/bin/bash
# Shows what becomes of drives' write caches that a server sets: a guest with an AHCI disk, a SAS
# disk, one that refuses, one behind USB and one of virtio. Servers set the caches and put them back,
# are killed, and followed by others.
#
#   tests/guest/cache.sh        (make guest-cache)
#
# Needs Debian, or a kernel with modules in MANYLOGS_GUEST_KERNEL: a directory with boot/vmlinuz-* and
# lib/modules.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh

tools strip=binutils
# The cloud kernels have no AHCI.
kernel linux-image-6.12-amd64 "${MANYLOGS_GUEST_KERNEL:-$out/kernel-6.12}" ||
    die "no package linux-image-6.12-amd64: run apt-get update"
build
root=$work/root
root_with_modules "$root" scsi_common scsi_mod sd_mod libata libahci ahci raid_class \
    scsi_transport_sas mptbase mptscsih mptsas crc64 crc64-rocksoft crc64-rocksoft_generic t10-pi \
    crc-t10dif crct10dif_common scsi_debug usb-common usbcore xhci-hcd xhci-pci usb-storage fuse
with_libraries "$root" "$manylogs" mke2fs
strip "$root/bin/manylogs"
cp tests/guest/cache/init.sh "$root/init"
cp tests/guest/cache/checks.sh "$root/checks.sh"
chmod +x "$root/init"
pack "$root"
guest_options=()
# name bus: a disk of 512 MiB.
disk() {
    truncate -s 512M "$work/$1"
    guest_options+=(-blockdev "driver=raw,node-name=$1,file.driver=file,file.filename=$work/$1"
        -device "$2,drive=$1")
}
guest_options+=(-device ahci,id=ahci -device "mptsas1068,id=sas" -device qemu-xhci,id=usb)
disk sata ide-hd,bus=ahci.0,write-cache=on
disk ext4 ide-hd,bus=ahci.1,write-cache=on
disk sas scsi-hd,bus=sas.0,write-cache=on,wwn=0x5000c500a1b2c3d4
disk stick usb-storage,bus=usb.0
truncate -s 512M "$work/virtio"
boot_guest 1500 2048 "" "file=$work/virtio"
verdict "guest" "caches are put back"
say "passed"
