#!/bin/bash
# MLFS: an image that manylogs fs mount serves. Part of run.sh.

# What no file system behind FUSE can be asked: glibc knows the largest count of links by the type
# of the file system; and remounting read-only, which other programs' open files make fail.
mlfs_skipped=14

mlfs() {
    has mkfs.ext4 || { skip "mlfs: mkfs.ext4 is missing" && return; }
    local mode
    for mode in ordered data manylogs durable; do
        : >"$log"
        mlfs_fresh "$mode" || { fail "mlfs, $mode: not made or mounted" && continue; }
        if [ "$mode" != data ] && has pjdfstest; then
            check "mlfs, $mode: pjdfstest" mlfs_pjdfstest
        elif [ "$mode" != data ]; then
            skip "mlfs: pjdfstest is missing (cargo install pjdfstest --version 0.2.2)"
        fi
        fsx_if_there "mlfs, $mode"
        check "mlfs, $mode: page cache, O_DIRECT and mmap of one file" mlfs_mixed
        if has stress-ng; then check "mlfs, $mode: stress-ng" fs_stress; fi
        check "mlfs, $mode: unmount and fsck" mlfs_is_whole "$mode"
        check "mlfs, $mode: $rounds kills" mlfs_killed "$mode"
    done
    check "mlfs: trees by the kernel and by MLFS" mlfs_trees
    if ! has git || ! git -c safe.directory='*' -C "$history" rev-parse --quiet --verify HEAD >/dev/null; then
        skip "mlfs: no git, or $history is no repository (HISTORY)" && return
    fi
    for mode in ordered data manylogs; do
        check "mlfs, $mode: checkouts of a history, beside the kernel's ext4" mlfs_checkouts "$mode"
    done
}

# Thousands of processes at once, and a directory that changes while it is listed.
crowd() {
    has mkfs.ext4 || { skip "crowd: mkfs.ext4 is missing" && return; }
    local off=noattrcache,lookupcache=none,nodircache,noreaddirplus,nodatacache
    crowd_in ordered noatime
    crowd_in manylogs noatime
    crowd_in ordered "$off"
}

# crowd_in MODE OPTIONS
crowd_in() {
    check "crowd, $1, $2: $processes processes" crowd_with crowd.py "$processes" "$@"
    check "crowd, $1, $2: $names names" crowd_with large_directory.py "$names" "$@"
}

# crowd_with PROGRAM COUNT MODE OPTIONS
crowd_with() {
    unmount "$work/crowd/root"
    rm -rf "$work/crowd"
    limit=14400 limited python3 "$here/$1" "$manylogs" "$work/crowd" "$2" "$seed" "$3" "$4" >"$work/crowd.out" \
        2>>"$log" || return 1
    figures=$(tail -n 1 "$work/crowd.out")
}

# mlfs_has_logs MODE
mlfs_has_logs() { [ "$1" = manylogs ] || [ "$1" = durable ]; }

# mlfs_fresh MODE: a new file system, mounted; adopted for the mode manylogs. Where the mode is
# durable it is manylogs, and all files are such as need durability and no place.
mlfs_fresh() {
    image=$work/mlfs.img
    rm -f "$image" && truncate -s 2G "$image" || return 1
    quietly mkfs.ext4 -q -F -b 4096 "$image" || return 1
    mlfs_has_logs "$1" || {
        quietly "$manylogs" fs mount "$image" "$mnt" --mode "$1" --background
        return
    }
    quietly "$manylogs" fs adopt "$image" --yes || return 1
    quietly "$manylogs" fs mount "$image" "$mnt" --mode manylogs --background || return 1
    [ "$1" != durable ] || mlfs_hands_down "$mnt"
}

# mlfs_hands_down DIRECTORY: what is created in it needs durability and no place.
mlfs_hands_down() {
    quietly python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.manylogs.durable", b"1")' "$1"
}

mlfs_pjdfstest() {
    cat >"$work/pjdfstest.toml" <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
expected_failures = []
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
TOML
    local code=0
    # By a short way: the names of sockets have 107 bytes at most. What it makes elsewhere it makes
    # on the file system of the images.
    local short
    short=$(mktemp -d /tmp/mlfs.XXXX) && quietly mount --bind "$mnt" "$short" || return 1
    chmod 755 "$mnt"
    quietly pjdfstest -c "$work/pjdfstest.toml" -p "$short" -s "$work" || code=$?
    unmount "$short"
    rmdir "$short"
    figures=$(sed -n 's/^Summary: //p' "$log")
    local skipped
    skipped=$(sed -n 's/^Summary: .* \([0-9]*\) skipped.*/\1/p' "$log")
    # More that was skipped is less that was tried.
    [ "$code" = 0 ] && [ "${skipped:-999}" -le "$mlfs_skipped" ]
}

# A twentieth of the operations with each of 20 seeds.
mlfs_mixed() {
    local run each=$((fsx_ops / 20))
    for run in $(seq 20); do
        quietly python3 "$here/mixed.py" "$mnt/mixed" "$each" "$((seed * 1000 + run))" || return 1
    done
    rm "$mnt/mixed"
    figures="20 times $each operations"
}

# What was synced is there after each kill -9 of the server.
mlfs_killed() {
    image=$work/mlfs-kills.img
    rm -f "$image" && truncate -s 1G "$image" && quietly mkfs.ext4 -q -F -b 4096 "$image" || return 1
    python3 "$here/mlfs_kills.py" "$manylogs" "$image" "$work/killed" "$rounds" "$seed" "$1" \
        >"$work/mlfs-kills.out" 2>>"$log" || return 1
    figures=$(tail -n 1 "$work/mlfs-kills.out")
}

mlfs_trees() {
    python3 "$here/trees.py" "$manylogs" "$trees" "$work/trees" "$seed" >"$work/trees.out" \
        2>>"$log" || return 1
    figures=$(tail -n 1 "$work/trees.out")
}

# mlfs_checkouts MODE
mlfs_checkouts() {
    python3 "$here/checkouts.py" "$manylogs" "$work/checkouts" "$history" "$revisions" "$1" \
        >"$work/checkouts.out" 2>>"$log" || return 1
    figures=$(tail -n 1 "$work/checkouts.out")
}

# mlfs_is_whole MODE
mlfs_is_whole() {
    # The server lets the image go when the last write is there.
    quietly "$manylogs" fs unmount "$mnt" || return 1
    ! mlfs_has_logs "$1" || quietly "$manylogs" fs release "$image" || return 1
    quietly e2fsck -fn "$image" || return 1
    figures=$(tail -n 1 "$log" | sed 's/.*: //')
}
