# Everything that reaches the disk is logged; the host replays it to each flush.
dm create below --table "0 $sectors log-writes /dev/vda /dev/vdb"
dmsetup mknodes
serve
/real/mke2fs -q -t ext4 "$device" >/keep/mkfs 2>&1 || { cat /keep/mkfs; failed "mke2fs"; }
mount -t ext4 "$device" /data || failed "mount"
sync
dmsetup message below 0 mark fs || failed "mark"
written 1 40 mark || failed "files"
# Over what is there, and large enough to pass the logs by.
for turn in 1 2 3; do
    dd if=/dev/urandom of=/data/large bs=1M count=4 conv=fsync 2>/dev/null || failed "large"
    rm -f /data/gone && dd if=/dev/urandom of=/data/gone bs=4k count=50 2>/dev/null
    manylogs checkpoint $below >/keep/said-of-checkpoint 2>&1 || {
        cat /keep/said-of-checkpoint
        failed "checkpoint"
    }
    written $((turn * 20 + 21)) $((turn * 20 + 40)) mark || failed "files"
done
umount /data || failed "umount"
stopped
dm remove below
seen "$(wc -l </keep/sums) files are written and marked"
