#!/bin/bash
# Shows what machines that serve volumes to themselves may rely on, with the modules that few kernels
# here have: in a guest the volume on its disk is served through ublk, to the kernel's NBD client,
# and to both under ext4. Servers are killed, users go on, checksums and e2fsck find nothing.
#
#   tests/guest/served.sh [ublk] [nbd]        (make guest)
#
# Needs Debian with a 6.12 kernel for the cloud, or one in MANYLOGS_UBLK_KERNEL: a directory with
# boot/vmlinuz-* and lib/modules.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh
[ $# -gt 0 ] || set -- ublk nbd
plugin=$target/release/libmanylogs_nbdkit.so

initramfs() {
    local root=$work/root filters
    root_with_modules "$root" ublk_drv nbd
    with_libraries "$root" mke2fs e2fsck nbdkit nbd-client "$manylogs"
    # Of the same name as busybox's, which have no O_DSYNC.
    with_libraries "$root" dd
    mv "$root/bin/dd" "$root/bin/dd-gnu"
    mv "$root/bin/mke2fs" "$root/bin/mke2fs-e2fsprogs"
    filters=$(nbdkit --dump-config | sed -n 's/^filterdir=//p')
    mkdir -p "$root$filters" "$root/etc"
    cp "$filters/nbdkit-blocksize-filter.so" "$root$filters/"
    libraries_of "$root" "$filters/nbdkit-blocksize-filter.so"
    cp "$plugin" "$root/bin/"
    libraries_of "$root" "$plugin"
    cp /etc/mke2fs.conf "$root/etc/"
    cp tests/guest/served/*.sh "$root/"
    cp tests/guest/served/init.sh "$root/init"
    chmod +x "$root/init"
    echo "$*" >"$root/checks"
    pack "$root"
}

tools nbdkit=nbdkit nbd-client=nbd-client unxz=xz-utils
kernel linux-image-6.12-cloud-amd64 "${MANYLOGS_UBLK_KERNEL:-$out/kernel-ublk}" || {
    say "skipped: no package linux-image-6.12-cloud-amd64 (offline? run apt-get update)"
    exit 0
}
build
"$manylogs" format "$work/disk.img" --size 512M --sparse
initramfs "$@"
boot_guest "${MANYLOGS_GUEST_SECONDS:-900}" 768 "" "file=$work/disk.img"
verdict guest passed
"$manylogs" check "$work/disk.img"
say "passed: $*"
