#!/bin/bash
# What packaging/ brings under a real systemd: Debian boots in a guest with a volume on its second
# disk. First the udev rule finds it, starts its server, and /etc/fstab mounts what is on it; there
# the server is killed, stopped and started (systemd_inside.sh). The second time without the rule,
# by an enabled unit. Each power-off must leave the volume closed in order. On the third disk is an
# ext4 that MLFS adopted: udev calls it so, the kernel refuses it, and a line of /etc/fstab mounts it.
#
#   tests/guest/systemd.sh [SEED]        (make guest-systemd; ten minutes)
#
# Needs Debian: a root directory is made of its packages once and kept. MANYLOGS_GUEST_KERNEL as
# for drained.sh. BUILT names a directory like target/release in which everything is built already.
# Needs root.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh
seed=${1:-1}

# Debian with systemd and udev, as packages make it.
debian() {
    [ -s "$out/debian.tar" ] && return
    local suite
    suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    say "making a root directory of Debian $suite"
    mmdebstrap --quiet --format=tar --variant=minbase --include=systemd,systemd-sysv,udev,kmod,e2fsprogs \
        "$suite" "$out/debian.tar.part"
    mv "$out/debian.tar.part" "$out/debian.tar"
}

# The guest's disk: Debian, this software as `make install` puts it there, and the test.
guest_disk() {
    local root=$work/debian version
    mkdir "$root"
    tar -C "$root" -xf "$out/debian.tar"
    make --no-print-directory -s install BUILT="$built" DESTDIR="$root" PREFIX=/usr
    version=$(ls "$kernel/lib/modules")
    mkdir -p "$root/lib/modules/$version/kernel"
    # Of the modules what is needed: the rest would be most of the disk.
    cp "$kernel/lib/modules/$version"/modules.* "$root/lib/modules/$version/"
    for name in fuse loop autofs4; do
        (cd "$kernel/lib/modules/$version" && find kernel -name "$name.ko" -print0 |
            xargs -0 cp --parents -t "$root/lib/modules/$version")
    done
    chroot "$root" depmod "$version"
    echo guest >"$root/etc/hostname"
    : >"$root/etc/machine-id"
    mkdir -p "$root/srv/backup" "$root/srv/mlfs" "$root/test" "$root/etc/systemd/system.conf.d" \
        "$root/etc/systemd/system/multi-user.target.wants"
    # The guest's processor is emulated: nothing is to give up early.
    printf '[Manager]\nDefaultTimeoutStartSec=15min\nDefaultDeviceTimeoutSec=15min\n' \
        >"$root/etc/systemd/system.conf.d/slow.conf"
    cp "$work/sums" "$root/test/"
    cp tests/guest/systemd_inside.sh "$root/test/inside.sh"
    echo "$id" >"$root/test/id"
    echo "/run/manylogs/by-id/$id /srv/backup ext4" \
        "nofail,x-systemd.requires=manylogs@dev-manylogs-${id//-/}.service 0 0" >"$root/etc/fstab"
    echo "UUID=$uuid /srv/mlfs fuse.manylogs nofail 0 0" >>"$root/etc/fstab"
    cat >"$root/etc/systemd/system/test.service" <<'UNIT'
[Unit]
Description=Test of manylogs@.service
[Service]
Type=exec
ExecStart=/bin/bash /test/inside.sh
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
UNIT
    ln -s ../test.service "$root/etc/systemd/system/multi-user.target.wants/"
    for unit in serial-getty@ttyS0.service getty@tty1.service getty-static.service apt-daily.timer \
        apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer fstrim.timer \
        systemd-networkd-wait-online.service; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
    truncate -s 1G "$work/debian.img"
    mke2fs -q -t ext4 -d "$root" "$work/debian.img"
    rm -rf "$root"
}

first_steps() {
    local root=$work/root
    root_with_modules "$root"
    mkdir -p "$root/new"
    cat >"$root/init" <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
for round in 1 2 3 4; do
    for module in /modules/*.ko; do insmod "$module" 2>/dev/null; done
done
mount -t ext4 /dev/vda /new || { echo "VERDICT: no root"; poweroff -f; }
umount /proc /sys
mount --move /dev /new/dev
exec switch_root /new /sbin/init
INIT
    chmod +x "$root/init"
    pack "$root"
}

# A file system that MLFS adopted, with something in its logs.
adopted() {
    uuid=$(cat /proc/sys/kernel/random/uuid)
    truncate -s 256M "$work/adopted.img"
    mke2fs -q -t ext4 -b 4096 -U "$uuid" "$work/adopted.img"
    "$manylogs" fs adopt --yes "$work/adopted.img"
    mkdir "$work/adopted"
    "$manylogs" fs mount --background "$work/adopted.img" "$work/adopted"
    echo durable >"$work/adopted/logged"
    sync "$work/adopted/logged"
    "$manylogs" fs unmount "$work/adopted"
}

# It is whole ext4 again, with what the guest wrote.
released() {
    "$manylogs" fs release "$work/adopted.img"
    e2fsck -fn "$work/adopted.img" || die "e2fsck finds something"
    local found
    found=$(debugfs -R 'cat /again' "$work/adopted.img" 2>/dev/null)
    [ "$found" = again ] || die "in /again is: $found"
}

# visit NUMBER: boots the guest, whose inside.sh does what belongs to this visit.
visit() {
    boot_guest 1800 768 "manylogs.visit=$1" "file=$work/debian.img" "file=$work/disk.img" \
        "file=$work/adopted.img"
    verdict "guest, visit $1" passed
    "$manylogs" status "$work/disk.img" | tee "$work/status"
    grep -q '^state  *closed$' "$work/status" || die "power-off left the volume open"
}

[ "$(id -u)" = 0 ] || die "needs root, to make the guest's files"
tools mmdebstrap=mmdebstrap
kernel linux-image-cloud-amd64 "${MANYLOGS_GUEST_KERNEL:-$out/kernel}" ||
    die "no package linux-image-cloud-amd64: run apt-get update"
debian
build
file_system $((96 << 20))
"$manylogs" format "$work/disk.img" --size 256M --sparse --label backup
# It leaves as a crash does: the guest's first server has something to recover.
"$copy_in" "$work/plain.img" "$work/disk.img" "$seed"
id=$("$manylogs" probe "$work/disk.img" | sed -n 's/^ID_FS_UUID=//p')
adopted
guest_disk
first_steps
visit 1
visit 2
released
say "passed"
