#!/bin/bash
# Runs in the guest of systemd.sh, as a service. The volume is on /dev/vdb, a file system that MLFS
# adopted on /dev/vdc, which /etc/fstab mounts by its UUID; of the host are
# /test/id and /test/sums. "SEEN" lines are for people, the one with "VERDICT" is for the host.
set -uo pipefail
id=$(cat /test/id)
by_rule=manylogs@dev-manylogs-${id//-/}.service
link=/run/manylogs/by-id/$id
visit=$(sed -n 's/.*manylogs.visit=\([0-9]*\).*/\1/p' /proc/cmdline)

seen() { echo "SEEN $*"; }
# The last word: what turns the machine off ends this script too.
verdict() {
    echo "VERDICT: $*"
    systemctl --no-block start poweroff.target
    exit
}
failed() {
    systemctl --no-pager status "$unit" srv-backup.mount
    journalctl --no-pager -b -n 60
    verdict "failed: $*"
}
# Repeats a command until it succeeds. An emulated processor takes its time.
until_true() {
    local attempt
    for attempt in $(seq 600); do
        "$@" && return
        sleep 0.5
    done
    failed "in vain $attempt times: $*"
}
property() { systemctl show "$unit" --property "$1" --value; }
active() { systemctl -q is-active "$unit"; }
mounted() { mountpoint -q /srv/backup; }
said() { journalctl -b -o cat --unit "$unit" | grep "$1" >/dev/null; }
files_are_right() {
    (cd /srv/backup && cat /test/sums /test/more | sha256sum --quiet -c)
}

# Served, announced, mounted, and what the host put there is there.
served() {
    until_true active
    until_true mounted
    [ "$(property Type)" = notify ] || failed "not of type notify"
    # Ready only when the volume was there: not at once, but when READY=1 came.
    local began ready
    began=$(property ExecMainStartTimestampMonotonic)
    ready=$(property ActiveEnterTimestampMonotonic)
    [ "$ready" -gt "$began" ] || failed "ready at $ready, started at $began"
    [ -b "$(readlink -f "$link")" ] || failed "$link is no device"
    files_are_right || failed "files"
    manylogs status "$disk" >/tmp/status || failed "status: $?"
    grep -q '^volume .*, good$' /tmp/status || failed "$(cat /tmp/status)"
    seen "$unit is ready after $(((ready - began) / 1000)) ms, $(wc -l </test/sums) files right"
}

# Fields that a program can read, with the right urgency.
logged() {
    said '^level=info msg="volume .* device=.* bytes=.* volume='"$id" || failed "no log line"
    [ "$1" != recovered ] || said 'recovered_extents=[1-9]' || failed "no recovery in the log"
    seen "journal: $(journalctl -b -o cat --unit "$unit" | grep '^level=' | head -n 1)"
}

killed() {
    local before after
    dd if=/dev/urandom of=/srv/backup/killed bs=1M count=4 2>/dev/null
    (cd /srv/backup && sha256sum killed) >>/test/more
    sync -f /srv/backup
    before=$(property MainPID)
    kill -9 "$before"
    until_true restarted "$before"
    after=$(property MainPID)
    until_true mounted
    files_are_right || failed "files after kill -9"
    seen "kill -9: server $before came back as $after, mounted again, files right"
    [ "$(losetup --noheadings --list | wc -l)" = 1 ] || failed "$(losetup --list)"
}
restarted() { active && [ "$(property NRestarts)" = 1 ] && [ "$(property MainPID)" != "$1" ]; }

stopped() {
    systemctl stop "$unit" || failed "stop"
    mounted && failed "still mounted"
    active && failed "still active"
    [ "$(property Result)" = success ] || failed "result $(property Result)"
    said '^level=info msg="closed, ' || failed "no orderly end in the log"
    [ -z "$(losetup --noheadings --list)" ] || failed "$(losetup --list)"
    [ ! -e "$link" ] || failed "$link is still there"
    manylogs status "$disk" >/tmp/status
    grep -q '^state  *closed$' /tmp/status || failed "$(cat /tmp/status)"
    seen "systemctl stop: unmounted and closed in order; left in /run/manylogs:" \
        "$(find /run/manylogs -type f -o -type l -o -type s | tr '\n' ' ')"
    # The mount asks for the server.
    systemctl start srv-backup.mount || failed "start of the mount"
    active || failed "mounted without its server"
    files_are_right || failed "files after stop and start"
    seen "systemctl start srv-backup.mount: served and mounted again"
}

# What systemd and udev find wrong with the unit and the rule.
verified() {
    local found
    found=$(systemd-analyze verify --man=no "$unit" 2>&1) || failed "verify: $found"
    seen "systemd-analyze verify: ${found:-nothing found}"
    seen "systemd-analyze security: $(systemd-analyze security --no-pager "$unit" | tail -n 1)"
    udevadm test /sys/block/vdb >/tmp/udev 2>&1 || failed "udevadm test: $(tail /tmp/udev)"
    grep -q "SYSTEMD_WANTS=$by_rule" /tmp/udev || failed "udevadm test: $(cat /tmp/udev)"
    grep -iE '60-manylogs.*(invalid|unknown|ignor|fail)' /tmp/udev && failed "the rule"
    [ "$(udevadm info -q symlink /dev/vdb | grep -ow "manylogs/${id//-/}")" ] ||
        failed "no name under /dev"
    if udevadm verify --help >/dev/null 2>&1; then
        udevadm verify /etc/udev/rules.d/60-manylogs.rules || failed "udevadm verify"
        seen "udevadm verify: fine"
    fi
    seen "udevadm test: $(grep -o "SYSTEMD_WANTS=.*" /tmp/udev | head -n 1)"
}

# An adopted disk is no ext4 to udev, nor to the kernel, and is mounted by its line in /etc/fstab.
adopted() {
    until_true mountpoint -q /srv/mlfs
    [ "$(cat /srv/mlfs/logged)" = durable ] || failed "what was logged is $(cat /srv/mlfs/logged)"
    local type
    type=$(udevadm info -q property /dev/vdc | sed -n 's/^ID_FS_TYPE=//p')
    [ "$type" = mlfs ] || failed "udev calls it $type"
    systemctl stop srv-mlfs.mount || failed "stop of srv-mlfs.mount"
    mount -t ext4 /dev/vdc /mnt 2>/tmp/refused && failed "the kernel mounts it"
    systemctl start srv-mlfs.mount || failed "start of srv-mlfs.mount"
    echo again >/srv/mlfs/again
    sync /srv/mlfs/again
    seen "udev calls the adopted disk $type, the kernel refuses it, fstab mounts it by its UUID"
}

touch /test/more
case $visit in
1)
    unit=$by_rule disk=/dev/manylogs/${id//-/}
    served
    logged recovered
    verified
    adopted
    killed
    stopped
    # For the next visit: without the rule, by name.
    ln -sf /dev/null /etc/udev/rules.d/60-manylogs.rules
    systemctl -q enable manylogs@dev-vdb.service || failed "enable"
    sed -i "s/$by_rule/manylogs@dev-vdb.service/" /etc/fstab
    ;;
2)
    unit=manylogs@dev-vdb.service disk=/dev/vdb
    [ ! -e /dev/manylogs ] || failed "the rule is still there"
    served
    logged closed
    until_true mountpoint -q /srv/mlfs
    [ "$(cat /srv/mlfs/again)" = again ] || failed "what was synced before the power-off"
    ;;
esac
verdict "passed"
