#!/bin/bash
# Clients of the NBD export. Part of run.sh.

# The engine's own server, and nbdkit with the plugin.
nbd() {
    nbd_by nbd
    local plugin
    plugin=$(dirname "$manylogs")/libmanylogs_nbdkit.so
    if has nbdkit && [ -e "$plugin" ]; then
        nbd_by nbdkit --nbdkit-plugin "$plugin"
    else
        skip "nbdkit: nbdkit or the plugin is missing"
    fi
}

# nbd_by NAME [OPTION...]: the options that serve takes beside the address.
nbd_by() {
    local by=$1
    shift
    : >"$log"
    mkdir -p "$work/nbd/mnt"
    local socket=$work/nbd/s
    volume 4G && serve --nbd "unix:$socket" "$@" || { fail "$by: no server" && return; }
    if has fio && fio --enghelp | grep -qw nbd; then
        local rw
        for rw in randwrite write; do
            check "$by: fio $rw mixed, depth 16" fio_verify "$by" --ioengine=nbd --uri="$where" \
                --rw="$rw" --iodepth=16 --bssplit="$mixed" --size=64m
        done
    else
        skip "$by: fio with its nbd engine is missing"
    fi
    if has nbdinfo; then check "$by: nbdinfo" nbd_info; else skip "$by: nbdinfo is missing"; fi
    if has nbdcopy; then
        check "$by: nbdcopy there and back" nbd_copy
        check "$by: nbdcopy back after kill -9" nbd_killed "unix:$socket" "$@"
    else
        skip "$by: nbdcopy is missing"
    fi
    if has qemu-img && [ -e "$work/nbd/random" ]; then
        check "$by: qemu-img" nbd_qemu
    else
        skip "$by: qemu-img is missing"
    fi
    if has nbdfuse; then check "$by: nbdfuse" nbd_fuse; else skip "$by: nbdfuse is missing"; fi
    unserve
    check "$by: manylogs check" volume_is_whole
}

nbd_info() {
    quietly nbdinfo "$where" || return 1
    size=$(nbdinfo --size "$where")
    figures="$size bytes; $(grep -cE 'can_[a-z_]*: true' "$log") abilities"
    quietly nbdinfo --can flush "$where" && quietly nbdinfo --can fua "$where" &&
        quietly nbdinfo --can trim "$where" && quietly nbdinfo --can zero "$where"
}

# As large as the export, with random bytes in a good part of it and holes between.
random_image() {
    python3 - "$work/nbd/random" "$(nbdinfo --size "$where")" "$seed" >>"$log" 2>&1 <<'PYTHON'
import random
import sys
path, size, rng = sys.argv[1], int(sys.argv[2]), random.Random(sys.argv[3])
with open(path, "wb") as file:
    file.truncate(size)
    for _ in range(300):
        data = rng.randbytes(rng.choice((512, 4096, 65536, 2 << 20)))
        file.seek(rng.randrange((size - len(data)) // 512) * 512)
        file.write(data)
PYTHON
}

nbd_copy() {
    random_image || return 1
    quietly nbdcopy --flush "$work/nbd/random" "$where" || return 1
    nbd_back
}

nbd_back() {
    rm -f "$work/nbd/back"
    quietly nbdcopy "$where" "$work/nbd/back" || return 1
    quietly cmp "$work/nbd/random" "$work/nbd/back" || return 1
    figures="$(du -m "$work/nbd/random" | cut -f 1) MiB of random bytes in \
$(stat -c %s "$work/nbd/random" | numfmt --to=iec) the same"
    rm -f "$work/nbd/back"
}

nbd_killed() {
    kill_server
    serve --nbd "$@" && nbd_back
}

nbd_qemu() {
    quietly qemu-img compare -f raw "$work/nbd/random" "$where" || return 1
    quietly qemu-img convert -n -f raw -O raw "$work/nbd/random" "$where" || return 1
    quietly qemu-img compare -f raw "$work/nbd/random" "$where" || return 1
    figures="compare, convert, compare: identical"
}

# A file of nbdfuse, a loop device over it, a file system on that.
nbd_fuse() {
    local code=0 waited
    : >"$work/nbd/file"
    nbdfuse "$work/nbd/file" "$where" >>"$log" 2>&1 &
    local pid=$!
    others+=("$pid")
    for waited in $(seq 100); do
        mountpoint -q "$work/nbd/file" && break
        [ "$waited" -lt 100 ] || return 1
        sleep 0.1
    done
    fuse_loop=$(losetup --find --show "$work/nbd/file") || return 1
    nbd_fuse_fs || code=$?
    if mountpoint -q "$work/nbd/mnt"; then umount "$work/nbd/mnt"; fi
    if [ "$code" = 0 ]; then quietly e2fsck -fn "$fuse_loop" || code=$?; fi
    losetup -d "$fuse_loop"
    fuse_loop=
    sleep 0.5
    umount "$work/nbd/file" || true
    timeout 60 tail --pid="$pid" -f /dev/null || code=1
    others=()
    return "$code"
}

nbd_fuse_fs() {
    quietly mkfs.ext4 -q -F "$fuse_loop" || return 1
    quietly mount "$fuse_loop" "$work/nbd/mnt" || return 1
    figures="ext4"
    has fsx || return 0
    quietly fsx -q -N "$((fsx_ops / 10))" -S "$seed" -P "$work" "$work/nbd/mnt/fsx" || return 1
    figures+=", $((fsx_ops / 10)) operations of fsx, e2fsck fine"
}
