#!/bin/busybox sh
# Runs as the first process of the guest. The disk is /dev/vda. From the host: /table, /sums (of the
# files), /whole (checksum of the whole image, and its MiB), /mode (before or after the drain). Lines
# that begin with "SEEN" are for people, the one that begins with "VERDICT" is for the host.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# Modules that need others load in a later round.
for round in 1 2 3 4; do
    for module in /modules/*.ko; do insmod "$module" 2>/dev/null; done
done

verdict() {
    echo "VERDICT: $*"
    sync
    poweroff -f
}

lsmod | grep -i manylogs && verdict "failed: this software is here"
dmsetup create data --noudevrules --noudevsync /table || verdict "failed: dmsetup"
dmsetup mknodes
[ -b /dev/mapper/data ] || verdict "failed: no device"
echo "SEEN dmsetup: $(dmsetup table data | wc -l) linear targets on $(uname -sr)"
e2fsck -fn /dev/mapper/data >/fsck.log 2>&1
fsck=$?
echo "SEEN e2fsck -fn: exit code $fsck"
megabytes=$(cut -d ' ' -f 2 /whole)
whole=$(dd if=/dev/mapper/data bs=1M count="$megabytes" 2>/dev/null | sha256sum | cut -d ' ' -f 1)
[ "$whole" = "$(cut -d ' ' -f 1 /whole)" ] && same=same || same=different
echo "SEEN all $megabytes MiB, free space too: $same"
mkdir -p /data
if ! mount -t ext4 -o ro,noload /dev/mapper/data /data; then
    [ "$(cat /mode)" = before ] && verdict "data is not there: fsck $fsck, no mount"
    verdict "failed: mount"
fi
cd /data
sha256sum -c /sums >/checked 2>/dev/null
right=$(grep -c ': OK$' /checked)
all=$(wc -l </sums)
echo "SEEN sha256sum: $right of $all files are right"
cd /
umount /data
if [ "$(cat /mode)" = before ]; then
    [ "$right" = "$all" ] && verdict "failed: the data is there"
    verdict "data is not there: fsck $fsck, $right of $all files right"
fi
[ "$fsck" = 0 ] || { cat /fsck.log; verdict "failed: e2fsck"; }
[ "$same" = same ] || verdict "failed: what is no file differs"
[ "$right" = "$all" ] || { grep -v ': OK$' /checked; verdict "failed: checksums"; }

# As any other disk: written, and whole afterwards.
mount -t ext4 /dev/mapper/data /data || verdict "failed: mount to write"
dd if=/dev/urandom of=/data/new bs=1M count=8 2>/dev/null && sync || verdict "failed: write"
(cd /data && sha256sum new) >/new-sum
rm "/data/$(head -n 1 /sums | cut -c 67-)" || verdict "failed: remove"
umount /data || verdict "failed: umount"
e2fsck -fn /dev/mapper/data >/fsck.log 2>&1 || { cat /fsck.log; verdict "failed: e2fsck later"; }
mount -t ext4 -o ro /dev/mapper/data /data || verdict "failed: mount again"
(cd /data && sha256sum -c /new-sum) >/dev/null 2>&1 || verdict "failed: what was written"
(cd /data && tail -n +2 /sums | sha256sum -c) >/dev/null 2>&1 || verdict "failed: the others"
verdict "data is there: fsck clean, $right of $all files right, written to and right again"
