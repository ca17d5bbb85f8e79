#!/bin/busybox sh
# Runs as the first process of the guest. The disk with the volume is /dev/vda; /checks names what is
# to be shown. Lines that begin with "SEEN" are for people, the one that begins with "VERDICT" is
# for the host.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# Modules that need others load in a later round.
for round in 1 2 3 4; do
    for module in /modules/virtio*.ko; do insmod $module 2>/dev/null; done
done
mkdir -p /run /tmp /data /keep
mount -t tmpfs -o size=300m tmpfs /keep
ifconfig lo up
export HOME=/ MKE2FS_CONFIG=/etc/mke2fs.conf
disk=/dev/vda
said=/keep/said

seen() { echo "SEEN $check: $*"; }
verdict() {
    echo "VERDICT: $*"
    sync
    poweroff -f
    sleep 60
}
failed() {
    tail -n 30 $said
    dmesg | tail -n 30
    verdict "failed: $check: $*"
}
seconds() { cut -d ' ' -f 1 /proc/uptime; }

# Starts the server with OPTIONS..., and waits for what it prints. Sets $server and $device.
serve() {
    rm -f /keep/device
    manylogs serve $disk "$@" >/keep/device 2>>$said &
    server=$!
    for turn in $(seq 600); do
        device=$(cat /keep/device)
        [ -n "$device" ] && return
        kill -0 $server 2>/dev/null || failed "serve $* ended"
        sleep 0.1
    done
    failed "serve $* prints nothing"
}

killed() {
    kill -9 $server
    wait $server 2>/dev/null
}

# It has to end with exit code CODE and say WORDS: refused CODE WORDS COMMAND...
refused() {
    local code=$1 words=$2 found
    shift 2
    "$@" >/keep/refused 2>&1
    found=$?
    [ $found = "$code" ] && grep -q -e "$words" /keep/refused && return
    cat /keep/refused
    failed "$* ended with $found, not with $code and '$words'"
}

stopped() {
    manylogs stop $disk >/keep/stopped 2>&1 || { cat /keep/stopped; failed "stop"; }
    wait $server || failed "the server's exit code after stop"
}

# Files whose checksums are kept outside of the volume: written FIRST LAST [sync].
written() {
    local i
    for i in $(seq "$1" "$2"); do
        dd if=/dev/urandom of=/data/file$i bs=$((512 + i * 397)) count=$((1 + i % 23)) \
            ${3:+conv=fsync} 2>/dev/null || return 1
        (cd /data && sha256sum file$i) >>/keep/sums || return 1
    done
}

# All files are as their checksums say, on the device and not in memory only.
verified() {
    echo 3 >/proc/sys/vm/drop_caches
    (cd /data && sha256sum -c /keep/sums) >/keep/checked 2>&1 || {
        grep -v ': OK$' /keep/checked | tail -n 5
        failed "checksums: $(grep -c ': OK$' /keep/checked) of $(wc -l </keep/sums) files are right"
    }
    seen "$1: all $(wc -l </keep/sums) files are right"
}

clean() {
    umount /data || failed "umount"
    e2fsck -fn "$device" >/keep/fsck 2>&1 || { cat /keep/fsck; failed "e2fsck -fn"; }
    seen "e2fsck -fn: clean"
}

fresh() {
    : >/keep/sums
    mke2fs-e2fsprogs -q -t ext4 "$device" >/keep/mkfs 2>&1 || { cat /keep/mkfs; failed "mke2fs"; }
    mount -t ext4 "$device" /data || failed "mount"
}

# What the block layer knows of the device.
queue() { cat "/sys/block/${device#/dev/}/queue/$1"; }
must_be() {
    [ "$(queue "$1")" = "$2" ] || failed "$1 is $(queue "$1"), not $2"
}

# A single sector between two others, and bytes that need no whole page.
sectors() {
    dd if=/dev/urandom of=/keep/three bs=512 count=3 2>/dev/null
    dd-gnu if=/keep/three of="$device" bs=512 count=3 seek=4097 oflag=direct 2>/dev/null ||
        failed "write of three sectors"
    dd if=/dev/urandom of=/keep/one bs=512 count=1 2>/dev/null
    dd-gnu if=/keep/one of="$device" bs=512 count=1 seek=4098 oflag=direct conv=fsync 2>/dev/null ||
        failed "write of one sector"
    dd if=/keep/one of=/keep/three bs=512 count=1 seek=1 conv=notrunc 2>/dev/null
    dd-gnu if="$device" of=/keep/found bs=512 count=3 skip=4097 iflag=direct 2>/dev/null ||
        failed "read of three sectors"
    cmp /keep/three /keep/found || failed "sectors differ"
    seen "single sectors are written alone"
}

# All of it, and how long that takes.
discarded() {
    local from to
    from=$(seconds)
    blkdiscard "$device" || failed "blkdiscard"
    to=$(seconds)
    [ "$(dd-gnu if="$device" bs=1M count=64 iflag=direct 2>/dev/null | tr -d '\000' | wc -c)" = 0 ] ||
        failed "discarded blocks do not read as zeroes"
    seen "blkdiscard of $(($(cat "/sys/block/${device#/dev/}/size") / 2048)) MiB:" \
        "$(echo "$to $from" | awk '{ printf "%.2f s", $1 - $2 }'), reads as zeroes"
}

for check in $(cat /checks); do
    . "/$check.sh"
done
verdict "passed"
