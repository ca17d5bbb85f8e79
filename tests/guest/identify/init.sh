#!/bin/busybox sh
# Runs as the first process of the guest. Lines that begin with "SEEN" are for people, the one that
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

for wait in $(seq 60); do
    [ "$(ls /dev/sd? 2>/dev/null | wc -l)" = 3 ] && break
    sleep 1
done
[ "$(ls /dev/sd? | wc -l)" = 3 ] || verdict "failed: disks: $(ls /dev/sd? | tr "\n" " ") $(dmesg | grep -i sym | tail -n 12)"

# The names of the disks are in no certain order.
disk_of() {
    for disk in /dev/sd?; do
        manylogs drive identify "$disk" --json 2>/dev/null | grep -q "\"serial\": \"$1\"" && echo "$disk"
    done
}
# SERIAL FOUND_BY DRIVE
wants() {
    disk=$(disk_of "$1")
    [ -n "$disk" ] || verdict "failed: no disk says $1: $(manylogs drive identify /dev/sda 2>&1)"
    said=$(manylogs drive identify "$disk")
    echo "$said" | sed 's/^/SEEN /'
    manylogs drive identify "$disk" --json >/tmp/json
    grep -q "\"found_by\": \"$2\"" /tmp/json && grep -q "\"drive\": \"$3\"" /tmp/json ||
        verdict "failed: $1 is $(tr -d '\n' </tmp/json)"
}
wants ZR512ABC catalogue exos-x18-18t
wants WAB1CDE2 catalogue exos-15e900-900g
wants OWN1 class "$(basename "$(disk_of OWN1)")"
manylogs drive new mine --capacity 4T --rpm 5400 --serial OWN1 </dev/null >/dev/null ||
    verdict "failed: no profile of its own"
wants OWN1 own mine

# A recording notes its disk.
disk=$(disk_of WAB1CDE2)
manylogs record "$disk" --seconds 3 -o /tmp/t.trace >/tmp/said 2>&1 &
sleep 1
for place in 1 2000 40 900; do
    dd if="$disk" of=/dev/null bs=64k skip=$place count=8 2>/dev/null
done
wait
said=$(manylogs replay /tmp/t.trace --policy nologging --seeds 1 2>&1)
echo "$said" | grep '^note: recorded' | sed 's/^/SEEN /'
echo "$said" | grep -q 'recorded on ST900MP0006: it is modelled by `exos-15e900-900g`' ||
    verdict "failed: $(cat /tmp/said) $said"
verdict "recognised three disks"
