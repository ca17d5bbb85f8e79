#!/bin/bash
# ext4 and XFS over a loop device. Part of run.sh.

# make_fs TYPE [OPTION...]
make_fs() {
    case $1 in
    ext4) quietly mkfs.ext4 -q -F "${@:2}" "$device" ;;
    xfs) quietly mkfs.xfs -q -f "${@:2}" "$device" ;;
    esac
}

# mount_fs TYPE [OPTION...]
mount_fs() { quietly mount -t "$1" "${@:2}" "$device" "$mnt"; }

# Says nothing is wrong without changing anything.
fs_is_whole() {
    case $1 in
    ext4) quietly e2fsck -fn "$device" ;;
    xfs) quietly xfs_repair -n "$device" ;;
    esac
}

# A new volume with a file system on it, mounted.
fresh_file_system() {
    has "mkfs.$1" || { skip "$1: mkfs.$1 is missing" && return 1; }
    : >"$log"
    volume 8G && serve && make_fs "$1" && mount_fs "$1" && return
    fail "$1: not made or mounted"
    return 1
}

fsx_if_there() {
    if has fsx; then
        check "$1: fsx" fs_fsx
    else
        skip "$1: fsx is missing (cargo install fsx)"
    fi
}

fsx_alone() {
    fresh_file_system "$1" || return 0
    fsx_if_there "$1"
    check "$1: fsck" fs_unmounted_is_whole "$1"
    unserve
    check "$1: manylogs check" volume_is_whole
}

# What is checked with every change: some minutes.
short() {
    fresh_file_system ext4 || return 0
    if has fio; then fs_fio ext4; else skip "ext4: fio is missing"; fi
    fsx_if_there ext4
    check "ext4: fsck" fs_unmounted_is_whole ext4
    unserve
    check "ext4: manylogs check" volume_is_whole
}

fs_unmounted_is_whole() { quietly umount "$mnt" && fs_is_whole "$1"; }

file_system() {
    local type=$1
    fresh_file_system "$type" || return 0
    if has fio; then fs_fio "$type"; else skip "$type: fio is missing"; fi
    fsx_if_there "$type"
    if has stress-ng; then
        check "$type: stress-ng" fs_stress
    else
        skip "$type: stress-ng is missing"
    fi
    check "$type: fsck and files after an orderly restart" fs_orderly "$type"
    check "$type: fsck and files after sync and kill -9" fs_killed "$type"
    unserve
    check "$type: manylogs check" volume_is_whole
}

fs_fio() {
    local file=$mnt/fio
    check "$1: fio direct, mixed sizes" fio_verify fs --filename="$file" --rw=randwrite \
        --ioengine=libaio --iodepth=16 --bssplit="${mixed#*:*:}" --size=96m
    check "$1: fio buffered, fsync each 16" fio_verify fs --filename="$file" --rw=randwrite \
        --ioengine=psync --direct=0 --fsync=16 --invalidate=1 --bs=4k --size=16m
    check "$1: fio sequential 1m" fio_verify fs --filename="$file" --rw=write \
        --ioengine=io_uring --iodepth=8 --bs=1m --size=256m
    rm -f "$file"
}

# fsx by the defaults, then with what else a Linux file system can do.
fs_fsx() {
    local took=$SECONDS
    keep_cold "$mnt/fsx"
    fsx_many "$fsx_ops" || return 1
    cat >"$work/fsx.toml" <<'TOML'
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
fsync = 2
fdatasync = 2
punch_hole = 3
posix_fallocate = 1
truncate = 2
invalidate = 1
TOML
    fsx_many "$((fsx_ops / 10))" -f "$work/fsx.toml" || return 1
    end_others
    figures="$fsx_ops operations, and $((fsx_ops / 10)) with fsync, holes and invalidation"
    figures+=", $((SECONDS - took)) s"
}

# fsx_many OPERATIONS [OPTION...]: in processes of 10,000 each with a seed of its own. fsx 0.3.2
# never unmaps what it has read through a mapping: each truncation and msync then walks over all of
# its mappings, and with 65,530 of them, behind 330,000 operations, the kernel grants no more.
fsx_many() {
    local left=$1 each=10000 run=0
    shift
    while [ "$left" -gt 0 ]; do
        [ "$left" -gt "$each" ] || each=$left
        quietly fsx -q -N "$each" -S "$((seed * 1000 + run))" -P "$work" "$@" "$mnt/fsx" || return 1
        rm "$mnt/fsx"
        left=$((left - each)) run=$((run + 1))
    done
}

# Drops what is clean of the files from memory, over and over: fsx would read its file from there
# and the device never.
keep_cold() {
    python3 - "$@" <<'PYTHON' &
import os
import sys
import time
while True:
    for path in sys.argv[1:]:
        try:
            file = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            continue
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(file)
    time.sleep(0.02)
PYTHON
    others+=($!)
}

fs_stress() {
    mkdir "$mnt/stress"
    quietly stress-ng --temp-path "$mnt/stress" --hdd 1 --hdd-bytes 256m --iomix 1 \
        --iomix-bytes 256m --rename 1 --dir 1 --dentry 1 --fallocate 1 --fallocate-bytes 256m \
        --sync-file 1 --verify --timeout "$stress_seconds" --metrics-brief --seed "$seed" ||
        return 1
    rm -rf "$mnt/stress"
    figures=$(awk '$4 ~ /^(hdd|iomix|rename|dir|dentry|fallocate|sync-file)$/ && !seen[$4]++ {
        text = text ", " $4 " " $5
    } END { print substr(text, 3) " operations" }' "$log")
}

# make_tree NAME: files of many sizes, and their checksums outside.
make_tree() {
    python3 - "$mnt/$1" "$seed" >>"$log" 2>&1 <<'PYTHON' || return 1
import os
import random
import sys
root, rng = sys.argv[1], random.Random(sys.argv[2])
for number in range(800):
    folder = f"{root}/{number % 23}/{number % 7}"
    os.makedirs(folder, exist_ok=True)
    size = rng.choice((0, 1, 511, 4096, 20_000, 300_000, rng.randrange(2_000_000)))
    with open(f"{folder}/{number}", "wb") as file:
        file.write(rng.randbytes(size))
PYTHON
    (cd "$mnt/$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum) >"$work/$1.sums"
}

# The mounted tree is the one that was made.
tree_is_whole() {
    (cd "$mnt/$1" && limited sha256sum --quiet -c "$work/$1.sums") >>"$log" 2>&1
}

fs_orderly() {
    make_tree first || return 1
    quietly umount "$mnt" || return 1
    fs_is_whole "$1" || return 1
    restart_orderly || return 1
    mount_fs "$1" && tree_is_whole first || return 1
    figures="$(wc -l <"$work/first.sums") files, $(du -sm "$mnt/first" | cut -f 1) MB"
}

fs_killed() {
    make_tree second || return 1
    quietly sync -f "$mnt" || return 1
    restart_killed || return 1
    # The mount replays the journal, and fsck finds nothing to repair then.
    mount_fs "$1" && quietly umount "$mnt" || return 1
    fs_is_whole "$1" || return 1
    mount_fs "$1" && tree_is_whole first && tree_is_whole second || return 1
    figures="$(($(wc -l <"$work/first.sums") + $(wc -l <"$work/second.sums"))) files"
}
