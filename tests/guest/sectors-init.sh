#!/bin/busybox sh
# Runs as the first process of the guest. The disk is /dev/vda; "turn" on the kernel's command line
# says whether the volume is to be written or read. Lines that begin with "SEEN" are for people, the
# one that begins with "VERDICT" is for the host.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# Modules that need others load in a later round.
for round in 1 2 3 4; do
    for module in /modules/*.ko; do insmod "$module" 2>/dev/null; done
done
mkdir -p /run /tmp
export HOME=/
disk=/dev/vda
queue=/sys/block/vda/queue

# The power is cut: nothing is synced.
verdict() {
    echo "VERDICT: $*"
    echo b >/proc/sysrq-trigger
    sleep 60
}
failed() {
    cat /said
    dmesg | tail -n 20
    verdict "failed: $*"
}

serve() {
    manylogs serve $disk --file >/served 2>>/said &
    server=$!
    for turn in $(seq 300); do
        file=$(cat /served)
        [ -n "$file" ] && return
        kill -0 $server 2>/dev/null || failed "the server ended"
        sleep 0.1
    done
    failed "the server prints nothing"
}

put() { dd-gnu conv=notrunc status=none "$@" >>/said 2>&1 || failed "dd $*"; }

# What lies at SECTOR is what FILE holds.
same() {
    dd-gnu if="$file" skip="$1" bs=512 count=$(($(stat -c %s "$2") / 512)) status=none | cmp - "$2"
}

found="$(cat $queue/logical_block_size) $(cat $queue/write_cache)"
echo "SEEN the disk: logical sectors of $found"
[ "$found" = "4096 write through" ] || failed "another disk"
if grep -q turn=write /proc/cmdline; then
    manylogs format $disk >>/said 2>&1 || failed format
    serve
    # Logged, then home by a checkpoint, which raises the floor.
    put if=/small of="$file" bs=1536 seek=2000 oflag=direct,dsync
    manylogs checkpoint $disk >>/said 2>&1 || failed checkpoint
    # Home at once, durable by the flush.
    put if=/large of="$file" bs=1M seek=16 oflag=direct conv=notrunc,fdatasync
    # Only logged.
    put if=/small of="$file" bs=1536 seek=9001 oflag=direct,dsync
    echo "SEEN written and acknowledged: $(($(stat -c %s /large) / 512)) sectors at once, 3 and 3"
else
    serve
    same 32768 /large || failed "the large write is not there"
    same 6000 /small || failed "the checkpointed write is not there"
    same 27003 /small || failed "the logged write is not there"
    echo "SEEN all of it after the power was cut"
fi
verdict passed
