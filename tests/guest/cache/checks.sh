# What is tried in the guest; sourced by init.sh. A server's messages are in /tmp/said.
failed() {
    cat /tmp/said /tmp/out 2>/dev/null
    dmesg | tail -n 5
    verdict "failed: $*"
}

cache_type() { cat /sys/block/"$1"/device/scsi_disk/*/cache_type; }

# is DISK WORD WHEN: what drive and kernel say of the cache.
is() {
    [ "$(cache_type "$1")" = "$2" ] || failed "$3: $1 is $(cache_type "$1"), not $2"
    [ "$(cat /sys/block/"$1"/queue/write_cache)" = "$2" ] || failed "$3: the kernel takes $1 for another"
}

says() { grep -q "$1" "$2" || failed "nothing says $1"; }

# serve DISK OPTION...: until it serves. The server is $server.
serve() {
    local disk=$1 wait
    shift
    rm -f /tmp/out
    manylogs serve "/dev/$disk" --file "$@" >/tmp/out 2>/tmp/said &
    server=$!
    for wait in $(seq 600); do
        [ -s /tmp/out ] && return
        kill -0 $server 2>/dev/null || failed "no server of $disk $*"
        sleep 0.2
    done
    failed "the server of $disk $* is slow"
}

end() { manylogs stop "/dev/$1" >/tmp/out 2>&1 || failed "no stop of $1"; wait $server 2>/dev/null; }

killed() {
    kill -9 $server
    wait $server 2>/dev/null
}

# refused DISK CODE WORDS: a server with the cache off is refused, and nothing has changed.
refused() {
    local code
    manylogs serve "/dev/$1" --file --write-cache off >/tmp/out 2>/tmp/said
    code=$?
    [ $code = "$2" ] || failed "$1: exit code $code, not $2"
    says "$3" /tmp/said
    ls /run/manylogs/*.cache >/dev/null 2>&1 && failed "$1: a note is left"
}

# all_of DISK: set and put back, with kills in between.
all_of() {
    is "$1" "write back" "at first"
    serve "$1" --write-cache off
    is "$1" "write through" "served"
    manylogs status "/dev/$1" >/tmp/out 2>&1
    says "and turns it on at its end" /tmp/out
    end "$1"
    is "$1" "write back" "stopped"

    serve "$1" --write-cache off
    dd if=/tmp/content of="$(cat /tmp/out)" bs=4096 conv=fsync,notrunc 2>/dev/null || failed "dd"
    killed
    is "$1" "write through" "killed"
    manylogs list >/tmp/out 2>&1
    says "which was killed, has turned the write cache off" /tmp/out
    serve "$1"
    is "$1" "write back" "served again"
    says "is on again" /tmp/said
    dd if="$(cat /tmp/out)" bs=4096 count=64 2>/dev/null | cmp - /tmp/content ||
        failed "what was synced is not there"
    end "$1"

    serve "$1" --write-cache off
    killed
    serve "$1" --write-cache off
    is "$1" "write through" "served twice"
    killed
    manylogs stop "/dev/$1" >/tmp/out 2>&1 || failed "stop of a killed server"
    is "$1" "write back" "stopped after a kill"
    says "put back" /tmp/out
    manylogs stop "/dev/$1" >/tmp/out 2>&1 && failed "there is nothing to stop any more"

    serve "$1" --write-cache off
    for file in /sys/block/"$1"/device/scsi_disk/*/cache_type; do echo "write back" >"$file"; done
    is "$1" "write back" "set by hand"
    end "$1"
    is "$1" "write back" "set by hand and stopped"
    says "by somebody else" /tmp/said
    [ -z "$(ls /run/manylogs/*.cache 2>/dev/null)" ] || failed "a note of $1 is left"
    echo "SEEN $1, $2: put back at the end, by the next server, and by stop after a kill"
}

dd if=/dev/urandom of=/tmp/content bs=4096 count=64 2>/dev/null
sata=$(find_disk /ata1/) || sata=$(find_disk /ata)
sas=$(find_disk /end_device) || failed "no SAS disk"
usb=$(find_disk /usb) || failed "no disk behind USB"
debug=$(find_disk /pseudo) || failed "no disk of scsi_debug"
for dir in /sys/block/sd*; do
    case $(readlink -f "$dir") in */ata*) [ "$(basename "$dir")" = "$sata" ] || plain=$(basename "$dir") ;; esac
done
for disk in $sata $sas $usb $debug vda; do
    manylogs format "/dev/$disk" --force --conventional >/tmp/out 2>&1 || failed "format of $disk"
done
manylogs list >/tmp/out 2>&1
grep -E '^[a-z]+: ' /tmp/out | sed 's/^/SEEN list: /'
says "^$sata: SATA, write cache on, fua 0" /tmp/out
says "^$sata: .*FLUSH CACHE" /tmp/out
says "^vda: a host's (virtio), write cache unknown" /tmp/out
says "^$usb: USB, write cache unknown" /tmp/out
manylogs status "/dev/$sas" >/tmp/out 2>&1
says "SAS or another SCSI link (mptsas), write cache on" /tmp/out
grep -q "FLUSH CACHE" /tmp/out && failed "a SAS disk drains nothing"

all_of "$sata" SATA
all_of "$sas" SAS

refused vda 2 "its cache is set there"
refused "$usb" 2 "USB bridge"
# MODE SELECT of 6 and of 10 bytes is an illegal request.
for file in /sys/kernel/debug/scsi_debug/*/error; do
    for command in 0x15 0x55; do
        echo "2 -100 $command 0 0 0x2 0x5 0x24 0x0" >"$file" || failed "no errors can be injected"
    done
done
before=$(cache_type "$debug")
refused "$debug" 1 "refuses to have its write cache turned off"
[ "$(cache_type "$debug")" = "$before" ] || failed "the disk that refused was changed"
serve "$debug"
end "$debug"
echo "SEEN refused with exit code 2: virtio, USB; with 1: a disk that refuses MODE SELECT, which goes on"

/bin/mke2fs -q -F -t ext4 "/dev/$plain" >/tmp/out 2>&1 || failed "mke2fs"
mounted() { manylogs fs mount "/dev/$plain" /mnt --background "$@" >/tmp/out 2>/tmp/said || failed "mount $*"; }
mounted -o write_cache=off
is "$plain" "write through" "mounted"
manylogs fs unmount /mnt >/tmp/out 2>&1 || failed "unmount"
# The server ends a moment after the file system.
for wait in $(seq 50); do [ "$(cache_type "$plain")" = "write back" ] && break; sleep 0.2; done
is "$plain" "write back" "unmounted"
mounted --write-cache off
cp /tmp/content /mnt/content && sync /mnt/content
killall -9 manylogs
sleep 1
is "$plain" "write through" "killed"
manylogs fs unmount /mnt >/tmp/out 2>/tmp/said || failed "unmount after a kill"
is "$plain" "write back" "unmounted after a kill"
mounted --write-cache keep
cmp /mnt/content /tmp/content || failed "what was synced is not in the file"
manylogs fs unmount /mnt >/tmp/out 2>&1 || failed "unmount at the end"
echo "SEEN fs mount: put back by unmount, also after a kill"
