# The disk drops writes, or fails them, as if the power were cut under a running server: whatever
# was durable before must be there when it is served again.
linear="0 $sectors linear /dev/vda 0"
always_down="0 $sectors flakey /dev/vda 0 0 3600 1"

# turn TABLE: the disk is this from now on; what is under way gets there first or not at all.
turn() {
    dm suspend --noflush --nolockfs below
    dm load below --table "$1"
    dm resume below
}

dm create below --table "$linear"
dmsetup mknodes
serve
/real/mke2fs -q -t ext4 "$device" >/keep/mkfs 2>&1 || { cat /keep/mkfs; failed "mke2fs"; }
first=1
for how in drop_writes error_writes drop_writes error_writes; do
    mount -t ext4 "$device" /data || failed "mount after $how"
    verified "before $how"
    written $first $((first + 24)) || failed "files"
    # Some that nobody waits for.
    dd if=/dev/urandom of=/data/loose bs=64k count=30 2>/dev/null
    turn "$always_down $how"
    dd if=/dev/urandom of=/data/after bs=4k count=50 conv=fsync >/keep/after 2>&1
    seen "$how: a write and fsync afterwards ended with $?"
    kill -9 $server
    wait $server 2>/dev/null
    # A ublk device keeps its requests for the next server: unmounting waits until it is removed.
    [ "$front" = ublk ] && manylogs stop --force $below >/dev/null 2>&1
    umount /data 2>/dev/null || umount -l /data || failed "umount"
    [ "$front" = loop ] && /real/losetup --detach "$device" 2>/dev/null
    turn "$linear"
    serve
    /real/e2fsck -y -E journal_only "$device" >/keep/journal 2>&1
    [ $? -le 1 ] || { cat /keep/journal; failed "the journal after $how"; }
    /real/e2fsck -fn "$device" >/keep/fsck 2>&1 || {
        cat /keep/fsck
        failed "e2fsck -fn after $how"
    }
    seen "$how: e2fsck -fn is clean once the journal is replayed"
    first=$((first + 25))
done
mount -t ext4 "$device" /data || failed "mount"
verified "in the end"
umount /data || failed "umount"
stopped
