#!/bin/busybox sh
# Runs as the first process of the guest. /dev/sda is the AHCI disk, /dev/vda takes the recording of
# each depth, behind a line "# depth N". Lines that begin with "SEEN" are for people, the one that
# begins with "VERDICT" is for the host.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /tmp
mount -t tmpfs tmp /tmp
# Modules that need others load in a later round.
for round in 1 2 3 4 5; do
    for module in /modules/*.ko; do insmod "$module" 2>/dev/null; done
done

verdict() {
    echo "VERDICT: $*"
    sync
    poweroff -f
}

for wait in 1 2 3 4 5 6 7 8 9 10; do
    [ -b /dev/sda ] && break
    sleep 1
done
[ -b /dev/sda ] || verdict "failed: no AHCI disk"
queue=/sys/block/sda/queue
echo "SEEN $(uname -sr), $(cat $queue/scheduler), fua $(cat $queue/fua), $(cat $queue/write_cache)," \
    "depth $(cat /sys/block/sda/device/queue_depth)"
grep -q '\[mq-deadline\]' $queue/scheduler || verdict "failed: another scheduler"
[ "$(cat $queue/fua) $(cat $queue/write_cache)" = "0 write back" ] || verdict "failed: another disk"
tracing=/sys/kernel/tracing
mount -t tracefs tracing $tracing || verdict "failed: no tracefs"
echo 16384 >$tracing/buffer_size_kb
events="block_bio_queue block_rq_insert block_rq_issue block_rq_requeue block_rq_complete"
events="$events block_bio_backmerge block_bio_frontmerge"
each() { for event in $events; do echo "$1" >"$tracing/events/block/$event/$2"; done; }
# The disk is 8:0.
each 'dev == 8388608' filter
for depth in 1 4 32; do
    sed "s/DEPTH/$depth/" /load.fio >/tmp/load
    echo >$tracing/trace
    each 1 enable
    fio --runtime="$(cat /seconds)" --output=/tmp/said /tmp/load >/dev/null 2>&1 ||
        verdict "failed: fio: $(tail -n 3 /tmp/said)"
    each 0 enable
    { echo "# depth $depth"; cat $tracing/trace; } >>/tmp/recorded
    grep -q 'CPU.*LOST' $tracing/trace && verdict "failed: events were lost"
done
dd if=/tmp/recorded of=/dev/vda bs=1M conv=sync 2>/dev/null || verdict "failed: no room"
verdict "recorded $(wc -l </tmp/recorded) lines"
