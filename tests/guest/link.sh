#!/bin/bash
# Shows that the block layer of the model issues as the kernel does: a guest with an AHCI disk, whose
# answers take a disk's time, reads at depths 1, 4 and 32 beside durable writes and flushes, and
# records its block tracepoints. The model gets the same arrivals and completions.
#
#   tests/guest/link.sh [SECONDS]        (make guest-link)
#
# Leaves the recordings in target/guest/link. KEEP=1 puts their beginnings into crates/drives/disk/tests/data,
# for the tests without a guest. Needs Debian, or a kernel with modules for AHCI in
# MANYLOGS_GUEST_KERNEL: a directory with boot/vmlinuz-* and lib/modules.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh
seconds=${1:-20}

tools fio=fio
# The cloud kernels have no AHCI.
kernel linux-image-6.12-amd64 "${MANYLOGS_GUEST_KERNEL:-$out/kernel-6.12}" ||
    die "no package linux-image-6.12-amd64: run apt-get update"
root=$work/root
root_with_modules "$root" scsi_common scsi_mod sd_mod libata libahci ahci
with_libraries "$root" fio
cp tests/guest/link/init.sh "$root/init"
cp tests/guest/link/load.fio "$root/"
echo "$seconds" >"$root/seconds"
chmod +x "$root/init"
pack "$root"
truncate -s 256M "$work/recorded"
# One processor, on which the order of the kernel's work does not hang on which processor is free.
# Every answer takes 6 ms, and there are 250 a second: about what a disk does.
guest_options=(
    -smp 1
    -blockdev driver=null-co,node-name=nothing,size=8589934592,latency-ns=6000000,read-zeroes=on
    -object throttle-group,id=pace,x-iops-total=250
    -blockdev driver=throttle,throttle-group=pace,file=nothing,node-name=disk
    -device ahci,id=ahci -device ide-hd,drive=disk,bus=ahci.0,write-cache=on
)
boot_guest $((300 + 6 * seconds)) 768 "" "file=$work/recorded"
verdict "guest" "recorded"
traces=$out/link
mkdir -p "$traces"
for depth in 1 4 32; do
    tr -d '\0' <"$work/recorded" |
        awk -v depth="$depth" '/^# depth/ { on = $3 == depth } on' |
        awk -f tests/guest/link/events.awk >"$traces/link-$depth.txt"
    [ -z "${KEEP:-}" ] || head -n 2400 "$traces/link-$depth.txt" >"crates/drives/disk/tests/data/link-$depth.txt"
done
MANYLOGS_LINK_TRACES=$traces cargo test -q --locked --package manylogs-disk --test kernel -- --nocapture
say "passed"
