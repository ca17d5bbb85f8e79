#!/bin/bash
# Shows that disks are recognised: a guest whose AHCI and SCSI disks claim models and serial numbers of
# drives asks `drive identify` and `record`, and replays what it recorded without naming a drive.
#
#   tests/guest/identify.sh        (make guest-identify)
#
# Needs Debian, or a kernel with modules for AHCI and sym53c8xx in MANYLOGS_GUEST_KERNEL: a directory
# with boot/vmlinuz-* and lib/modules.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh

tools
# The cloud kernels have no AHCI.
kernel linux-image-6.12-amd64 "${MANYLOGS_GUEST_KERNEL:-$out/kernel-6.12}" ||
    die "no package linux-image-6.12-amd64: run apt-get update"
[ -n "${BUILT:-}" ] || cargo build -q --release --locked --package manylogs-cli
root=$work/root
root_with_modules "$root" scsi_common scsi_mod sd_mod libata libahci ahci scsi_transport_spi sym53c8xx
cp "$manylogs" "$root/bin/manylogs"
libraries_of "$root" "$manylogs"
cp tests/guest/identify/init.sh "$root/init"
chmod +x "$root/init"
pack "$root"
guest_options=(
    -smp 1 -device ahci,id=ahci -device lsi53c895a,id=scsi
    -blockdev driver=null-co,node-name=one,size=18000207937536,read-zeroes=on
    -blockdev driver=null-co,node-name=two,size=4000787030016,read-zeroes=on
    -blockdev driver=null-co,node-name=three,size=900185481216,read-zeroes=on
    -device ide-hd,drive=one,bus=ahci.0,model=ST18000NM000J-2TV103,serial=ZR512ABC,rotation_rate=7200
    -device ide-hd,drive=two,bus=ahci.1,model=UNHEARD4000,serial=OWN1,rotation_rate=5400
    -device scsi-hd,drive=three,bus=scsi.0,vendor=SEAGATE,product=ST900MP0006,serial=WAB1CDE2,rotation_rate=15000
)
# The timer of a guest on a busy machine is late, which the kernel would take for a broken one.
boot_guest 280 768 "no_timer_check"
verdict "guest" "recognised"
say "passed"
