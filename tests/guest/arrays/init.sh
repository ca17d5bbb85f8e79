#!/bin/busybox sh
# Runs as the first process of the guest. /dev/vda to /dev/vdd are the array's members, /dev/vde
# keeps what the test remembers. /level is the array's level, with -short if a member is removed
# after the power cut. /turn is before or after the cut, /cut is its number. Lines that begin with
# "SEEN" are for people, those with "VERDICT" are for the host.
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
# Modules that need others load in a later round.
for round in 1 2 3 4; do
    for module in /modules/*.ko; do insmod $module 2>/dev/null; done
done
mkdir -p /run /tmp /data /keep
export HOME=/ MKE2FS_CONFIG=/etc/mke2fs.conf PATH=/real:/bin
level=$(cat /level)
members="/dev/vda /dev/vdb /dev/vdc /dev/vdd"
left=$members
case $level in *-short) left="/dev/vda /dev/vdc /dev/vdd" ;; esac
level=${level%-short}
case $level in
striped) array=/dev/mapper/array ;;
lvm) array=/dev/group/array ;;
*) array=/dev/md0 ;;
esac
said=/tmp/said

seen() { echo "SEEN $*"; }
verdict() {
    echo "VERDICT: $*"
    sync
    poweroff -f
    sleep 60
}
failed() {
    tail -n 30 $said
    dmesg | tail -n 20
    verdict "failed: $*"
}

dm() { /real/dmsetup "$@" --noudevrules --noudevsync >>$said 2>&1 || failed "dmsetup $*"; }

# LVM without udev.
logical() {
    local command=$1
    shift
    /real/lvm $command --config 'devices { obtain_device_list_from_udev=0 use_devicesfile=0 }
        activation { udev_sync=0 udev_rules=0 monitoring=0 } global { use_lvmpolld=0 }
        backup { backup=0 archive=0 }' "$@" >>$said 2>&1 || failed "lvm $command $*"
}

# Puts the array together from its members, with "new" for the first time.
assemble() {
    if [ $level = lvm ]; then
        if [ "$1" = new ]; then
            logical pvcreate $members
            logical vgcreate group $members
            logical lvcreate -an -Zn -Wn --type striped -i 4 -I 64k -l 100%FREE -n array group
        fi
        logical vgchange -ay group
        /real/lvm vgmknodes >>$said 2>&1
        return
    fi
    if [ $level = striped ]; then
        # As LVM does it, in two parts, and below another mapping: the last part of the first one.
        dm create stripes --table "0 524288 striped 4 128 /dev/vda 2048 /dev/vdb 2048 /dev/vdc 2048 /dev/vdd 2048
524288 524288 striped 4 128 /dev/vda 141312 /dev/vdb 141312 /dev/vdc 141312 /dev/vdd 141312"
        /real/dmsetup mknodes
        dm create array --table "0 1040384 linear /dev/mapper/stripes 8192"
        /real/dmsetup mknodes
        return
    fi
    if [ "$1" = new ]; then
        layout=""
        [ $level = raid10 ] && layout="--layout=n2"
        # Blank members are in step.
        /real/mdadm --create /dev/md0 --run --level=$level $layout --raid-devices=4 --chunk=64 \
            --assume-clean --metadata=1.2 $members >>$said 2>&1 || failed "mdadm"
    else
        # Dirty as it is, it starts only if that is asked for.
        echo 1 >/sys/module/md_mod/parameters/start_dirty_degraded
        /real/mdadm --assemble /dev/md0 --run $left >>$said 2>&1 || failed "mdadm --assemble"
    fi
}

# Starts the server and waits for the device that it prints. Sets $server and $device.
serve() {
    rm -f /tmp/device
    /real/manylogs serve $array --loop >/tmp/device 2>>$said &
    server=$!
    for turn in $(seq 600); do
        device=$(cat /tmp/device)
        [ -n "$device" ] && return
        kill -0 $server 2>/dev/null || failed "serve ended"
        sleep 0.1
    done
    failed "serve prints nothing"
}

# Files whose checksums are kept on another disk: written FIRST LAST.
written() {
    local i
    for i in $(seq "$1" "$2"); do
        dd if=/dev/urandom of=/data/file$i bs=$((512 + i * 397)) count=$((1 + i % 23)) \
            conv=fsync 2>/dev/null || return 1
        (cd /data && sha256sum file$i) >>/keep/sums || return 1
    done
    sync
}

verified() {
    echo 3 >/proc/sys/vm/drop_caches
    (cd /data && sha256sum -c /keep/sums) >/tmp/checked 2>&1 || {
        grep -v ': OK$' /tmp/checked | tail -n 5
        failed "$1: $(grep -c ': OK$' /tmp/checked) of $(wc -l </keep/sums) files are right"
    }
    seen "$1: all $(wc -l </keep/sums) files are right"
}

writes_of() { awk '{print $5}' "/sys/block/${1#/dev/}/stat"; }

# md's own writes between small ones would go to all members: the server puts them off, and back.
put_off() {
    local now before=$1
    now=$(cat /sys/block/md0/md/safe_mode_delay 2>/dev/null) || return
    [ "$level" = raid0 ] && return
    [ "$now" = "$before" ] || failed "$2: md marks the array clean after $now s, not $before"
    seen "$2: md marks the array clean after $now s"
}

# How many members wrote something while a small write became durable, of 20 such writes each.
# Whatever else the volume writes meanwhile goes to more members: the most frequent number counts.
members_of_a_write() {
    local i disk before touched
    for i in $(seq 20); do
        before=""
        for disk in $members; do before="$before $(writes_of $disk)"; done
        /real/dd if=/dev/zero of=$device bs=80K seek=$((i * 7)) count=1 oflag=direct,dsync \
            conv=notrunc 2>>$said || failed "a small durable write"
        touched=0
        for disk in $members; do
            set -- $before
            [ "$(writes_of $disk)" = "$1" ] || touched=$((touched + 1))
            shift
            before="$*"
        done
        echo $touched
    done | sort | uniq -c | sort -rn | awk 'NR == 1 {print $2}'
}

before() {
    /real/mke2fs -q -t ext4 /dev/vde >$said 2>&1 || failed "mke2fs of the other disk"
    mount -t ext4 /dev/vde /keep || failed "mount of the other disk"
    assemble new
    # With a member gone, nothing may be lost that nobody was writing.
    close=""
    case $level in raid5 | raid6) close=--close-hole ;; esac
    /real/manylogs format $array --conventional --log 16M --group 64M --threshold 128K $close \
        >/tmp/formatted 2>&1 || { cat /tmp/formatted; failed "format"; }
    case $level in
    raid0 | striped | lvm) columns="4 columns, chunks of 64 KiB" each=1 ;;
    raid5) columns="3 columns and one of parity, chunks of 64 KiB" each=4 ;;
    raid6) columns="2 columns and 2 of parity, chunks of 64 KiB" each=4 ;;
    raid10) columns="2 columns of 2 drives each, chunks of 64 KiB" each=2 ;;
    esac
    grep -q "array *$columns" /tmp/formatted || {
        cat /tmp/formatted
        /real/dmsetup table 2>/dev/null
        failed "the shape"
    }
    seen "$(grep '^array' /tmp/formatted)"
    seen "$(grep '^mkfs' /tmp/formatted)"
    was=$(cat /sys/block/md0/md/safe_mode_delay 2>/dev/null)
    serve
    put_off 10.100 "served"
    grep -q "the array has $columns" $said || failed "serve does not say it"
    found=$(members_of_a_write)
    seen "a durable write of 80 KiB is written by $found of 4 members"
    [ "$found" = $each ] || failed "a record is not on $each members"
    /real/mke2fs -q -t ext4 -E stride=16,stripe_width=64 $device >>$said 2>&1 || failed "mke2fs"
    mount -t ext4 $device /data || failed "mount"
    : >/keep/sums
    written 1 60 || failed "writing"
    verified "written"
    umount /data
    /real/manylogs stop $array >>$said 2>&1 || failed "stop"
    wait $server
    put_off "$was" "stopped"
    serve
    mount -t ext4 $device /data || failed "mount"
    # The server is killed; whoever has the device waits or gets errors, and mounts it again.
    umount /data
    written_device=$device
    kill -9 $server
    wait $server 2>/dev/null
    /real/losetup -d "$written_device" 2>/dev/null
    serve
    mount -t ext4 $device /data || failed "mount after the kill"
    verified "after kill -9"
    written 61 120 || failed "writing after the kill"
    # More is on its way when the power goes.
    (while :; do dd if=/dev/urandom of=/data/busy bs=16k count=20 conv=fsync 2>/dev/null; done) &
    # Another moment for each cut: 2 to 5 s.
    sleep $((2 + $(cat /cut) * 6 / 10 % 3)).$((($(cat /cut) * 6) % 10))
    sync -f /keep/sums 2>/dev/null || sync
    echo "VERDICT: power cut"
    sleep 1
    echo b >/proc/sysrq-trigger
    sleep 60
}

after() {
    mount -t ext4 /dev/vde /keep || failed "mount of the other disk"
    assemble again
    seen "$(echo $left | wc -w) of 4 members, $(cat /sys/block/md0/md/degraded 2>/dev/null || echo 0) missing"
    /real/manylogs check $array >/tmp/check 2>&1 || { cat /tmp/check; failed "check"; }
    serve
    mount -t ext4 $device /data || failed "mount after the cut"
    verified "after the power cut"
    umount /data
    /real/e2fsck -fn $device >/tmp/fsck 2>&1 || { cat /tmp/fsck; failed "e2fsck -fn"; }
    seen "e2fsck -fn: clean"
    put_off 10.100 "served again"
    /real/manylogs stop $array >>$said 2>&1 || failed "stop"
    wait $server
    /real/manylogs drain $array >>$said 2>&1 || failed "drain"
    /real/manylogs table $array --dm >/tmp/table 2>>$said || failed "table"
    /real/dmsetup create data --noudevrules --noudevsync /tmp/table >>$said 2>&1 || failed "dmsetup"
    /real/dmsetup mknodes
    mount -t ext4 -o ro /dev/mapper/data /data || failed "mount of the drained volume"
    verified "drained, through device-mapper alone"
    umount /data
    verdict "passed"
}

$(cat /turn)
verdict "failed: it ended early"
