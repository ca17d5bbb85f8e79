#!/bin/busybox sh
# Runs as the first process of the guest. The disk with the volume is /dev/vda, /dev/vdb takes the
# log of dm-log-writes; /check names what is to be shown: "log" or "flakey", and /front how the
# volume is served: "loop" or "ublk". Lines that begin with "SEEN" are for people, the one that
# begins with "VERDICT" is for the host.
/bin/busybox --install -s /bin
export PATH=/real:/bin HOME=/ MKE2FS_CONFIG=/etc/mke2fs.conf
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# Modules that need others load in a later round.
for round in 1 2 3 4; do
    for module in /modules/*.ko; do insmod "$module" 2>/dev/null; done
done
mkdir -p /run /tmp /data /keep
mount -t tmpfs -o size=200m tmpfs /keep
check=$(cat /check)
front=$(cat /front)
below=/dev/mapper/below
sectors=$(cat /sys/block/vda/size)
said=/keep/said
: >/keep/sums

seen() { echo "SEEN $check, $front: $*"; }
verdict() {
    echo "VERDICT: $*"
    sync
    poweroff -f
    sleep 60
}
failed() {
    tail -n 30 $said
    dmesg | tail -n 30
    verdict "failed: $check, $front: $*"
}
dm() {
    dmsetup "$@" --noudevrules --noudevsync >/keep/dm 2>&1 && return
    cat /keep/dm
    failed "dmsetup $*"
}

serve() {
    rm -f /keep/device
    manylogs serve $below "--$front" >/keep/device 2>>$said &
    server=$!
    for turn in $(seq 600); do
        device=$(cat /keep/device)
        [ -n "$device" ] && return
        kill -0 $server 2>/dev/null || failed "serve ended"
        sleep 0.1
    done
    failed "serve prints nothing"
}

stopped() {
    manylogs stop $below >/keep/stopped 2>&1 || { cat /keep/stopped; failed "stop"; }
    wait $server || failed "the server's exit code after stop"
}

# Durable files, their checksums kept outside of the volume: written FIRST LAST [mark].
written() {
    local i sum
    for i in $(seq "$1" "$2"); do
        dd if=/dev/urandom of=/data/file$i bs=$((512 + i * 397)) count=$((1 + i % 23)) \
            conv=fsync 2>/dev/null || return 1
        sum=$(sha256sum </data/file$i | cut -d ' ' -f 1)
        echo "$sum  file$i" >>/keep/sums
        # The directory is durable too when its file is, with ext4.
        [ -z "${3:-}" ] || dmsetup message below 0 mark "file:file$i:$sum" || return 1
    done
}

# All durable files are as their checksums say.
verified() {
    [ -s /keep/sums ] || return 0
    (cd /data && sha256sum -c /keep/sums) >/keep/checked 2>&1 || {
        grep -v ': OK$' /keep/checked | tail -n 5
        failed "$1: of $(wc -l </keep/sums) durable files right: $(grep -c ': OK$' /keep/checked)"
    }
    seen "$1: all $(wc -l </keep/sums) durable files are right"
}

. "/$check.sh"
verdict passed
