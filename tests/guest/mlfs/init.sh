#!/bin/busybox sh
# Runs as the first process of the guest. The disk is /dev/vda. From the host: /tree.tar, /sums (of
# its files), /names (how many it has). Lines that begin with "SEEN" are for people, the one that
# begins with "VERDICT" is for the host.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# Modules that need others load in a later round.
for round in 1 2 3 4; do
    for module in /modules/*.ko; do insmod "$module" 2>/dev/null; done
done
mkdir -p /run /tmp /mnt
export HOME=/
disk=/dev/vda

verdict() {
    echo "VERDICT: $*"
    poweroff -f
    sleep 60
}
failed() {
    cat /said
    dmesg | tail -n 20
    verdict "failed: $*"
}
# must WHAT COMMAND...
must() {
    local what=$1
    shift
    "$@" >/said 2>&1 || failed "$what"
}
# Requests that the kernel has sent so far.
requests() {
    manylogs fs status /mnt --json >/status 2>/said || failed status
    sed -n '/"kernel_requests"/,/\]/s/.*"requests": \([0-9]*\).*/\1/p' /status |
        awk '{ sum += $1 } END { print sum + 0 }'
}
# What finds all names of the tree, with attributes.
walk() {
    local found
    found=$(find /mnt/tree ! -newer /future | wc -l)
    [ "$found" = "$(cat /names)" ] || failed "$found names, not $(cat /names)"
}
# files_are FILE: the files that FILE has the checksums of.
files_are() { (cd /mnt/tree && sha256sum -c "$1") >/said 2>&1 || failed "content"; }

# try MODE OPTIONS: from mkfs to e2fsck.
try() {
    local mode=$1 options=$2 before cold warm
    must mkfs mkfs.ext4 -q -F -b 4096 $disk
    [ "$mode" = ordered ] || must adopt manylogs fs adopt $disk --yes
    must mount manylogs fs mount $disk /mnt --mode "$mode" -o "$options" --background
    must untar tar -xf /tree.tar -C /mnt
    files_are /sums
    sync
    echo 2 >/proc/sys/vm/drop_caches
    before=$(requests)
    walk
    cold=$(($(requests) - before))
    walk
    before=$(requests)
    walk
    warm=$(($(requests) - before))
    # The status itself asks for some things.
    [ "$warm" -le 8 ] || failed "$warm requests of a warm walk"
    must rm rm -r /mnt/tree/part2
    [ ! -e /mnt/tree/part2 ] || failed "a removed directory is there"
    must unmount manylogs fs unmount /mnt
    must "mount again" manylogs fs mount $disk /mnt --mode "$mode" -o "$options" --background
    grep -v ' \./part2/' /sums >/rest
    files_are /rest
    must "unmount again" manylogs fs unmount /mnt
    [ "$mode" = ordered ] || must release manylogs fs release $disk
    must e2fsck e2fsck -fn $disk
    echo "SEEN $mode, $options: $(cat /names) names, a walk took $cold requests cold, $warm warm," \
        "$(wc -l </rest) files are right, e2fsck is content"
}

touch -d 2090-01-01 /future
echo "SEEN $(uname -sr), $(dmesg | sed -n 's/.*fuse: init (\(.*\))/FUSE: \1/p' | tail -n 1)"
[ ! -e /sys/module/fuse/parameters/enable_uring ] || failed "this kernel has FUSE over io_uring"
try ordered noatime
try ordered noatime,uring
try manylogs relatime
verdict passed
