# A volume through nbdkit and the kernel's NBD client. Sourced by init.sh.

insmod /modules/nbd.ko || failed "insmod nbd"
socket=/run/m.sock
device=/dev/nbd0

served() {
    serve --nbd unix:$socket
    device=/dev/nbd0
}

connected() {
    nbd-client -unix $socket $device -b 512 "$@" >>$said 2>&1 || failed "nbd-client"
    for turn in $(seq 100); do
        [ "$(cat /sys/block/nbd0/size)" -gt 0 ] && return
        sleep 0.1
    done
    failed "the device has no size"
}

served
connected
must_be logical_block_size 512
must_be write_cache "write back"
must_be fua 1
seen "$device: rotational $(queue rotational), $(queue write_cache), FUA $(queue fua)"
sectors
discarded
fresh
refused 5 "NBD connections" manylogs stop $disk
written 1 60 sync
written 61 90
sync
verified "written back"
dd-gnu if=/dev/urandom of=/data/dsync bs=4096 count=50 oflag=direct,dsync 2>/dev/null ||
    failed "synchronous writes"
(cd /data && sha256sum dsync) >>/keep/sums
verified "with synchronous writes"
clean
nbd-client -d $device >>$said 2>&1
[ "$(cat /sys/block/nbd0/size)" = 0 ] || failed "nbd-client -d"

# A killed server: requests fail, also with -persist, as the kernel tells the client of an orderly
# end; connected anew, what was durable is there.
connected -persist -nonetlink
dd if=/dev/urandom of=/keep/durable bs=4096 count=64 2>/dev/null
dd-gnu if=/keep/durable of=$device bs=4096 seek=100 oflag=direct,dsync 2>/dev/null || failed "FUA"
kill -9 "$(pidof nbdkit)"
wait $server 2>/dev/null
dd-gnu if=$device of=/keep/found bs=4096 skip=100 count=64 iflag=direct 2>/dev/null
cmp -s /keep/durable /keep/found && failed "requests are answered without a server"
served
by_itself=no
for turn in $(seq 50); do
    [ "$(cat /sys/block/nbd0/size)" -gt 0 ] && by_itself=yes
    [ $by_itself = yes ] && break
    sleep 0.1
done
if [ $by_itself = no ]; then
    nbd-client -d $device >>$said 2>&1
    connected
fi
dd-gnu if=$device of=/keep/found bs=4096 skip=100 count=64 iflag=direct 2>/dev/null || failed "read"
cmp /keep/durable /keep/found || failed "FUA writes are lost"
seen "FUA writes, then killed: they are there; connected again by itself: $by_itself"
nbd-client -d $device >>$said 2>&1
stopped
