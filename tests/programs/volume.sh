#!/bin/bash
# Volumes, and the servers of them. Part of run.sh.

# volume SIZE [OPTION...]: a new volume; an old one is thrown away.
volume() {
    unserve
    image=$work/volume.img
    rm -f "$image"
    quietly "$manylogs" format "$image" --size "$1" --sparse "${@:2}"
}

# serve [OPTION...]: until it has said where. What io_uring keeps of a killed server holds the lock
# for a moment: then it is tried again.
serve() {
    local code attempt
    for attempt in $(seq 100); do
        start_server "$@" && return 0
        code=0
        wait "$server" || code=$?
        server=
        [ "$code" = 5 ] || return 1
        echo "served before the lock was free, attempt $attempt" >>"$log"
        sleep 0.05
    done
    return 1
}

start_server() {
    : >"$work/where"
    [ $# -gt 0 ] || set -- --loop
    "$manylogs" serve "$image" "$@" >"$work/where" 2>>"$log" &
    server=$!
    for _ in $(seq 1200); do
        [ ! -s "$work/where" ] || break
        kill -0 "$server" 2>/dev/null || return 1
        sleep 0.05
    done
    [ -s "$work/where" ] || return 1
    where=$(head -n 1 "$work/where")
    if [ "$1" = --loop ]; then
        device=$where
        export_file=$(cat "/sys/block/${device#/dev/}/loop/backing_file")
    fi
}

# Kills it, as a crash of the process.
kill_server() {
    [ -n "$server" ] || return 0
    kill -9 "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}

# A file system whose disk is gone takes a moment; one that is in use goes with its last user.
unmount() {
    local attempt
    for attempt in $(seq 50); do
        awk '{ print $2 }' /proc/self/mounts | grep -qxF "$1" || return 0
        timeout 60 umount "$1" 2>>"$log" || sleep 0.1
    done
    echo "not unmounted after $attempt attempts: $1" >>"$log"
    umount -l "$1" 2>>"$log" || true
}

# What the kernel keeps of a killed server.
forget_device() {
    unmount "$mnt"
    [ -z "$device" ] || losetup -d "$device" 2>/dev/null || true
    device=
}

restart_killed() {
    kill_server
    forget_device
    serve
}

stop_server() {
    quietly "$manylogs" stop "$image" || return 1
    wait "$server"
    server='' device=''
}

# Whatever the state, afterwards nothing is served or mounted.
unserve() {
    unmount "$mnt"
    if [ -n "$server" ] && kill -0 "$server" 2>/dev/null; then
        timeout 30 "$manylogs" stop --force "$image" >>"$log" 2>&1 || true
        timeout 30 tail --pid="$server" -f /dev/null || true
    fi
    kill_server
    forget_device
    if [ -n "$export_file" ]; then
        umount -l "$export_file" 2>/dev/null || true
        rm -f "$export_file" "${export_file%.export}.sock"
    fi
    export_file=
}

end_others() {
    local pid
    for pid in "${others[@]}"; do
        kill "$pid" 2>/dev/null || continue
        timeout 10 tail --pid="$pid" -f /dev/null || kill -9 "$pid" 2>/dev/null || true
    done
    others=()
}

clean_up() {
    trap - EXIT INT TERM
    set +e
    end_postgres
    end_mariadb
    end_others
    unmount "$work/nbd/mnt"
    unmount "$mnt"
    unmount "$work/crowd/root"
    [ -z "${fuse_loop:-}" ] || losetup -d "$fuse_loop" 2>/dev/null
    unmount "$work/nbd/file"
    unserve
    rm -rf "$work"
    rmdir "$place" 2>/dev/null
}

volume_is_whole() { quietly "$manylogs" check "$image"; }
