#!/bin/bash
# PostgreSQL, killed together with the disk below it. Part of run.sh.

sql() { "${as_pg[@]}" psql -qAtX -v ON_ERROR_STOP=1 -d postgres "$@"; }

find_postgres() {
    pg_bin=$(find /usr/lib/postgresql -maxdepth 2 -name bin 2>/dev/null | sort -V | tail -n 1)
    if [ -z "$pg_bin" ] || ! id postgres >/dev/null 2>&1; then return 1; fi
    as_pg=(runuser -u postgres -- env PGHOST="$work/pg" PATH="$pg_bin:$PATH")
}

# make_cluster [SETTING...]: on the mounted file system, with its socket and log outside.
make_cluster() {
    rm -rf "$work/pg" && mkdir "$work/pg" && chown postgres "$work/pg"
    mkdir "$mnt/pg" && chown postgres "$mnt/pg" && chmod 700 "$mnt/pg"
    (cd / && quietly "${as_pg[@]}" initdb -k -A trust -D "$mnt/pg") || return 1
    printf '%s\n' "listen_addresses = ''" "unix_socket_directories = '$work/pg'" \
        'dynamic_shared_memory_type = mmap' "$@" >>"$mnt/pg/postgresql.conf"
    # initdb has seen to its own files only.
    quietly sync -f "$mnt"
}

stop_postgres() {
    (cd / && quietly "${as_pg[@]}" pg_ctl -s -w -t 120 -m fast -D "$mnt/pg" stop) || return 1
    rm -f "$work/pg/postmaster"
}

postgres() {
    if ! find_postgres; then
        skip "pg: PostgreSQL is missing"
        return
    fi
    local type
    for type in ext4 xfs; do
        if has "mkfs.$type"; then
            check "pg on $type: $pg_rounds kills" pg_on_logged "$type"
            end_postgres
        else
            skip "pg: mkfs.$type is missing"
        fi
    done
    unserve
}

# On MLFS, whose log of PostgreSQL has a place, and needs none.
postgres_mlfs() {
    if ! find_postgres || ! has mkfs.ext4; then
        skip "pg-mlfs: PostgreSQL or mkfs.ext4 is missing"
        return
    fi
    local type
    for type in mlfs mlfs-durable; do
        check "pg on $type: $pg_rounds kills" pg_on_logged "$type"
        end_postgres
        unserve
    done
}

# What PostgreSQL says belongs to what failed.
pg_on_logged() {
    pg_on "$1" && return
    tail -n 40 "$work/pg/log" >>"$log" || true
    return 1
}

pg_on() {
    pg_disk "$1" || return 1
    make_cluster 'shared_buffers = 32MB' 'checkpoint_timeout = 30s' 'max_wal_size = 64MB' \
        'min_wal_size = 32MB' 'restart_after_crash = off' || return 1
    start_postgres || return 1
    quietly "${as_pg[@]}" pgbench -i -q -s "$([ "$fast" ] && echo 5 || echo 20)" postgres ||
        return 1
    sql -c 'create table acknowledged (n bigint primary key)' >>"$log" 2>&1 || return 1
    local round next=1
    : >"$work/acknowledged"
    for round in $(seq "$pg_rounds"); do
        pg_round "$1" "$next" "$round" || return 1
        next=$((next + 1000000))
    done
    pg_end "$1"
}

# A new file system, mounted.
pg_disk() {
    if [[ $1 != mlfs* ]]; then
        volume 6G --log 2M --group 64M && serve && make_fs "$1" && mount_fs "$1"
        return
    fi
    unserve
    image=$work/mlfs.img
    # Half of the logs must hold the whole of pg_wal, or a part of it goes home: 120 of 240 MiB.
    rm -f "$image" && truncate -s 6G "$image" && quietly mkfs.ext4 -q -F -b 4096 "$image" &&
        quietly "$manylogs" fs adopt "$image" --yes --log-every 256M &&
        quietly "$manylogs" fs set "$image" checkpoint=every:60s && mlfs_serve "$1"
}

# mlfs_serve TYPE: until it has said where; what a killed server had locked is free in a moment.
mlfs_serve() {
    local options=() attempt
    [ "$1" != mlfs-durable ] || options=(--durable 'pg_wal/*,ib_logfile*')
    for attempt in $(seq 1200); do
        if [ -z "$server" ] || ! kill -0 "$server" 2>/dev/null; then
            : >"$work/where"
            "$manylogs" fs mount "$image" "$mnt" "${options[@]}" >"$work/where" 2>>"$log" &
            server=$!
        fi
        [ ! -s "$work/where" ] || return 0
        sleep 0.05
    done
    echo "not mounted after $attempt attempts" >>"$log"
    return 1
}

# What was killed is there again.
pg_disk_again() {
    forget_device
    if [[ $1 = mlfs* ]]; then
        mlfs_serve "$1"
        return
    fi
    serve || return 1
    if [ "$1" = ext4 ]; then
        local code=0
        quietly e2fsck -p "$device" || code=$?
        [ "$code" -le 1 ] || return 1
    fi
    mount_fs "$1"
}

# Unmounted, and nothing is wrong.
pg_disk_is_whole() {
    if [[ $1 != mlfs* ]]; then
        quietly umount "$mnt" && fs_is_whole "$1" && stop_server && volume_is_whole
        return
    fi
    local counts
    counts=$("$manylogs" fs status "$mnt" --json | python3 -c '
import json, sys
status = json.load(sys.stdin)
print(*(status[f"o_dur_{name}_bytes"] for name in ("live", "home", "moved")))') || return 1
    figures+=", $counts bytes live, home, moved"
    case $1/$counts in
    mlfs/0\ 0\ 0) ;;
    mlfs-durable/0\ *) return 1 ;;
    mlfs-durable/*\ 0\ *) ;;
    *) return 1 ;;
    esac
    quietly "$manylogs" fs unmount "$mnt" || return 1
    wait "$server" && server= && quietly "$manylogs" fs release "$image" &&
        quietly e2fsck -fn "$image"
}

start_postgres() {
    (cd / && quietly "${as_pg[@]}" pg_ctl -s -w -t 120 -D "$mnt/pg" -l "$work/pg/log" \
        start) || return 1
    # Outside, as the mount does not answer when its server is killed.
    head -n 1 "$mnt/pg/postmaster.pid" >"$work/pg/postmaster"
    awk 'NR == 7 { print $2 }' "$mnt/pg/postmaster.pid" >"$work/pg/segment"
}

# A client that notes outside the volume each number that was committed.
insert_from() {
    seq "$1" "$(($1 + 499999))" | sed 's/.*/insert into acknowledged values (&) returning n;/' |
        sql >>"$2" 2>>"$work/pg/clients" || true
}

# Lets clients go on for a moment, ends the disk's server and the database (by KILL), waits for the
# clients, and gathers the numbers that they noted: killed_midway ROUND KILL CLIENT...
killed_midway() {
    local round=$1 kill=$2 pid
    shift 2
    others+=("$@")
    sleep "$((1 + RANDOM % 4)).$((RANDOM % 10))"
    # In every third round the database goes first, in the others the disk.
    if [ $((round % 3)) = 0 ]; then "$kill"; fi
    kill_server
    sleep "0.$((RANDOM % 10))"
    "$kill"
    for pid; do
        timeout 60 tail --pid="$pid" -f /dev/null || return 1
        wait "$pid" || true
    done
    others=()
    cat "$work"/acknowledged.? >>"$work/acknowledged"
    rm -f "$work"/acknowledged.?
}

pg_round() {
    local type=$1 next=$2 clients=()
    "${as_pg[@]}" pgbench -n -c 4 -j 2 -T 60 postgres >>"$work/pg/clients" 2>&1 &
    clients+=($!)
    insert_from "$next" "$work/acknowledged.1" &
    clients+=($!)
    insert_from "$((next + 500000))" "$work/acknowledged.2" &
    clients+=($!)
    killed_midway "$3" kill_postgres "${clients[@]}" || return 1
    pg_disk_again "$type" && start_postgres || return 1
    pg_content
}

# Every number that a client has noted is there, and pgbench's books balance.
pg_content() {
    sort "$work/acknowledged" >"$work/noted"
    sql -c 'select n from acknowledged' >"$work/there.raw" 2>>"$log" || return 1
    sort "$work/there.raw" >"$work/there"
    local missing books
    missing=$(comm -23 "$work/noted" "$work/there" | wc -l)
    figures="$(wc -l <"$work/noted") rows acknowledged, $missing missing"
    [ "$missing" = 0 ] || return 1
    books=$(sql -c 'select count(distinct s) from (select sum(abalance) s from pgbench_accounts
        union all select sum(bbalance) from pgbench_branches
        union all select sum(tbalance) from pgbench_tellers
        union all select coalesce(sum(delta), 0) from pgbench_history) t' 2>>"$log") || return 1
    [ "$books" = 1 ] || { figures+="; the sums of pgbench differ" && return 1; }
}

pg_end() {
    local of_pgbench
    of_pgbench=$(sql -c 'select count(*) from pgbench_history') || return 1
    figures+=", $of_pgbench of pgbench"
    if [ -x "$pg_bin/pg_amcheck" ]; then
        (cd / && quietly "${as_pg[@]}" pg_amcheck --install-missing --heapallindexed \
            -d postgres) || return 1
        figures+=", pg_amcheck fine"
    fi
    stop_postgres || return 1
    quietly "${as_pg[@]}" "$pg_bin/pg_checksums" --check -D "$mnt/pg" || return 1
    figures+=", $(awk '/Blocks scanned/ { print $3 }' "$log" | tail -n 1) checksums fine"
    pg_disk_is_whole "$1" || return 1
    figures+=", fsck fine"
}

# The postmaster and all of its children, at once.
kill_postgres() {
    local pid
    pid=$(cat "$work/pg/postmaster" 2>/dev/null || true)
    [ -n "$pid" ] || return 0
    local children
    # A stopped one has no more children.
    kill -STOP "$pid" 2>/dev/null || true
    children=$(pgrep -P "$pid" || true)
    # shellcheck disable=SC2086
    kill -9 "$pid" $children 2>/dev/null || true
    rm -f "$work/pg/postmaster"
    for pid in $pid $children; do
        timeout 30 tail --pid="$pid" -f /dev/null || return 1
    done
    # The next one does not know this segment as its own if the loop device is another.
    ipcrm -m "$(cat "$work/pg/segment")" 2>>"$log" || true
}

end_postgres() { kill_postgres || true; }
