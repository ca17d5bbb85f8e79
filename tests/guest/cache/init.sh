#!/bin/busybox sh
# Runs as the first process of the guest. Lines that begin with "SEEN" are for people, the one that
# begins with "VERDICT" is for the host.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mount -t debugfs debug /sys/kernel/debug
mkdir -p /tmp /run /mnt
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
# Modules that need others load in a later round.
for round in 1 2 3 4 5 6 7; do
    for module in /modules/*.ko; do
        case $module in
        */scsi_debug.ko) insmod "$module" dev_size_mb=512 2>/dev/null ;;
        *) insmod "$module" 2>/dev/null ;;
        esac
    done
done

verdict() {
    echo "VERDICT: $*"
    sync
    poweroff -f
}

# The disk whose path in sysfs has a part like this.
find_disk() {
    for dir in /sys/block/sd*; do
        case $(readlink -f "$dir") in *$1*) basename "$dir" && return ;; esac
    done
    return 1
}

for wait in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do
    find_disk /usb >/dev/null && find_disk /ata >/dev/null && find_disk /end_device >/dev/null && break
    sleep 2
done
. /checks.sh
verdict "caches are put back"
