# A volume through ublk. Sourced by init.sh.

durable_writes() {
    manylogs metrics $disk |
        sed -n 's/^manylogs_request_latency_seconds_count{.*"durable-write"} //p'
}

refused 1 "modprobe ublk_drv" manylogs serve $disk --ublk
insmod /modules/ublk_drv.ko || failed "insmod ublk_drv"

serve --ublk
first=$device
must_be logical_block_size 512
must_be write_cache "write through"
must_be fua 0
must_be discard_granularity 4096
[ "$(queue write_zeroes_max_bytes)" -gt 1000000000 ] || failed "write_zeroes_max_bytes"
seen "$device on $(uname -sr): rotational $(queue rotational)," \
    "physical block $(queue physical_block_size), $(queue write_cache)"
sectors
discarded

# Servers are killed under load: whoever uses the device waits, and goes on.
fresh
refused 5 "is in use" manylogs stop $disk
(written 1 150 sync && : >/keep/all-written) &
writer=$!
# A signal that is refused does not disturb.
kill -TERM $server
for round in 1 2 3; do
    files=$(wc -l </keep/sums)
    sleep 2
    killed
    [ -b "$first" ] || failed "the device is gone with its server"
    sleep 0.5
    serve --ublk
    [ "$device" = "$first" ] || failed "$device instead of $first"
    for turn in $(seq 300); do
        [ "$(wc -l </keep/sums)" -gt "$files" ] && break
        [ -f /keep/all-written ] && break
        sleep 0.1
    done
    seen "killed: $files files were written, $(wc -l </keep/sums) after the restart"
done
grep -q "goes on" $said || failed "nothing is said of the recovery"
wait $writer
[ -f /keep/all-written ] || failed "the writer saw an error"
verified "synced, three servers killed"

# Also what nobody has flushed is there: the kernel believes that it is.
echo 1 >/proc/sys/vm/dirty_expire_centisecs
echo 10 >/proc/sys/vm/dirty_writeback_centisecs
written 151 180
dd if=/dev/urandom of=/data/large bs=1M count=24 2>/dev/null
(cd /data && sha256sum large) >>/keep/sums
sleep 2
killed
refused 5 "write-back" manylogs serve $disk --ublk --write-back
serve --ublk
[ "$device" = "$first" ] || failed "$device instead of $first"
sync
verified "not synced, another server killed"
clean
stopped
[ -b "$first" ] && failed "$first is still there"
ls /run/manylogs/*.ublk 2>/dev/null && failed "the note of the device is still there"

# By force the device ends under its users.
serve --ublk
fresh
written 1 5 sync
manylogs stop --force $disk >/keep/stopped 2>&1 || { cat /keep/stopped; failed "stop --force"; }
wait $server || failed "the server's exit code after stop --force"
dd if=/dev/urandom of=/data/lost bs=4096 count=1 conv=fsync 2>/dev/null &&
    failed "a file is written without a server"
umount /data || failed "umount of a device that is gone"
sleep 0.5
[ -b "$device" ] && failed "$device stays behind its last user"
serve --ublk
mount -t ext4 "$device" /data || failed "mount after stop --force"
verified "stopped by force under a mount"
clean
stopped

# Without a next server the users of the device are released.
serve --ublk
killed
refused 2 "no server" manylogs stop $disk
manylogs stop --force $disk >/keep/stopped 2>&1 || { cat /keep/stopped; failed "stop --force"; }
grep -q "removed $device" /keep/stopped || failed "stop --force does not say what it removed"
sleep 0.5
[ -b "$device" ] && failed "$device is still there"
seen "a device without a server is removed by force"

# Written back: the kernel says what is durable, and a killed server ends the device.
serve --ublk --write-back
must_be write_cache "write back"
must_be fua 1
fresh
written 1 20 sync
written 21 40
sync
verified "written back"
clean
dd if=/dev/urandom of=/keep/durable bs=4096 count=64 2>/dev/null
durable=$(durable_writes)
dd-gnu if=/keep/durable of="$device" bs=4096 seek=100 oflag=direct,dsync 2>/dev/null || failed "FUA"
durable=$(($(durable_writes) - durable))
[ $durable -ge 64 ] || failed "only $durable of 64 FUA writes are told as such"
killed
serve --ublk --write-back
dd-gnu if="$device" of=/keep/found bs=4096 skip=100 count=64 iflag=direct 2>/dev/null || failed "read"
cmp /keep/durable /keep/found || failed "FUA writes are lost"
seen "$durable FUA writes, then killed: they are there, on $device"
stopped
