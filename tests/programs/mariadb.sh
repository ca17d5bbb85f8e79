#!/bin/bash
# MariaDB on MLFS, killed together with the disk below it. Part of run.sh; its disks are those of
# postgres.sh.

find_mariadb() {
    has mariadbd && has mariadb && has mariadb-install-db && id mysql >/dev/null 2>&1
}

# Its redo log has a place, and needs none.
mariadb_mlfs() {
    if ! find_mariadb || ! has mkfs.ext4; then
        skip "mariadb-mlfs: MariaDB or mkfs.ext4 is missing"
        return
    fi
    local type
    for type in mlfs mlfs-durable; do
        check "mariadb on $type: $pg_rounds kills" maria_on_logged "$type"
        end_mariadb
        unserve
    done
}

# What MariaDB says belongs to what failed.
maria_on_logged() {
    maria_on "$1" && return
    tail -n 40 "$work/maria/log" >>"$log" || true
    return 1
}

maria_sql() { mariadb --no-defaults -uroot -S "$work/maria/socket" -N -s --unbuffered "$@"; }

maria_on() {
    pg_disk "$1" || return 1
    rm -rf "$work/maria" && mkdir "$work/maria" && chown mysql "$work/maria"
    mkdir "$mnt/maria" && chown mysql "$mnt/maria" && chmod 700 "$mnt/maria"
    quietly mariadb-install-db --no-defaults --user=mysql --datadir="$mnt/maria" \
        --auth-root-authentication-method=normal --skip-test-db || return 1
    # mariadb-install-db has seen to its own files only.
    quietly sync -f "$mnt"
    start_mariadb || return 1
    # Both get each number in one transaction.
    maria_sql -e 'create database kept; create table kept.one (n bigint primary key) engine innodb;
        create table kept.two (n bigint primary key, filler char(200) default "filler")
        engine innodb' >>"$log" 2>&1 || return 1
    local round next=1
    : >"$work/acknowledged"
    for round in $(seq "$pg_rounds"); do
        maria_round "$1" "$next" "$round" || return 1
        next=$((next + 1000000))
    done
    maria_end "$1"
}

start_mariadb() {
    mariadbd --no-defaults --user=mysql --datadir="$mnt/maria" --socket="$work/maria/socket" \
        --pid-file="$work/maria/pid" --skip-networking --innodb-buffer-pool-size=64M \
        --innodb-log-file-size=64M --innodb-flush-log-at-trx-commit=1 \
        >>"$work/maria/log" 2>&1 &
    maria=$!
    # Its end is no news to the shell.
    disown "$maria"
    local attempt
    for attempt in $(seq 2400); do
        ! maria_sql -e 'select 1' >/dev/null 2>&1 || return 0
        kill -0 "$maria" 2>/dev/null || break
        sleep 0.05
    done
    echo "MariaDB does not start after $attempt attempts" >>"$log"
    return 1
}

# A client that notes outside the file system each number that was committed.
maria_insert_from() {
    local words='start transaction; insert into kept.one values (&);'
    words+=' insert into kept.two (n) values (&); commit; select &;'
    seq "$1" "$(($1 + 499999))" | sed "s/.*/$words/" | maria_sql >>"$2" 2>>"$work/maria/clients" ||
        true
}

# maria_round TYPE NEXT ROUND
maria_round() {
    local clients=()
    maria_insert_from "$2" "$work/acknowledged.1" &
    clients+=($!)
    maria_insert_from "$(($2 + 500000))" "$work/acknowledged.2" &
    clients+=($!)
    killed_midway "$3" kill_mariadb "${clients[@]}" || return 1
    pg_disk_again "$1" && start_mariadb && maria_content
}

# Every number that a client has noted is there, and no transaction is half there.
maria_content() {
    local missing halves
    sort "$work/acknowledged" >"$work/noted"
    maria_sql -e 'select n from kept.one' >"$work/there.raw" 2>>"$log" || return 1
    sort "$work/there.raw" >"$work/there"
    missing=$(comm -23 "$work/noted" "$work/there" | wc -l)
    figures="$(wc -l <"$work/noted") rows acknowledged, $missing missing"
    halves=$(maria_sql -e 'select (select count(*) from kept.one) + (select count(*) from kept.two)
        - 2 * (select count(*) from kept.one join kept.two using (n))' 2>>"$log") || return 1
    figures+=", $halves halves"
    [ "$missing" = 0 ] && [ "$halves" = 0 ]
}

maria_end() {
    local checked
    checked=$(maria_sql -e 'check table kept.one, kept.two extended' 2>>"$log") || return 1
    [ "$(grep -c 'status.OK$' <<<"$checked")" = 2 ] || { echo "$checked" >>"$log" && return 1; }
    quietly mariadb-admin --no-defaults -uroot -S "$work/maria/socket" shutdown || return 1
    timeout 120 tail --pid="$maria" -f /dev/null || return 1
    maria=
    if has innochecksum; then
        quietly innochecksum "$mnt/maria/kept/one.ibd" "$mnt/maria/kept/two.ibd" || return 1
        figures+=", checksums fine"
    fi
    pg_disk_is_whole "$1" || return 1
    figures+=", fsck fine"
}

kill_mariadb() {
    [ -n "${maria:-}" ] || return 0
    kill -9 "$maria" 2>/dev/null || true
    timeout 30 tail --pid="$maria" -f /dev/null || return 1
    maria=
}

end_mariadb() { kill_mariadb || true; }
