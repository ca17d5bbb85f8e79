#!/bin/bash
# The effect on real file systems and databases: emulated drives in real time, with the volume and
# without. Small durable writes beside a stream that goes past the page cache (the Manylogs paper,
# Fig. 2), databases beside a backup (Fig. 5).
#
#   benches/effect/run.sh [PART...]        (make effect; FAST=1 for some minutes instead of an hour)
#
# Parts; all if none is named:
#   small      a process rewrites 4 KiB in each of 20 files all over the disk, syncs the file
#              system, and again, at RATES writes a second
#   matrix     the same at 320 writes a second on ext4 ordered, beside each of READERS, on the
#              volume and on the raw drive below each of the kernel's SCHEDULERS
#   databases  PostgreSQL (pgbench), and MongoDB's engine with a log flush every 33 and every 1 ms
#
# A run that is in the results already, and not void, is not made again: what was interrupted goes
# on, and the results are removed to begin anew.
#
# From the environment (with FAST=1 in brackets):
#   MANYLOGS      the program (target/release/manylogs)
#   DRIVES        emulated drives: cheetah-15k5 exos-x20 (cheetah-15k5)
#   SYSTEMS       file systems: ext4-ordered ext4-journal xfs (ext4-ordered); ext4 has a journal of
#                 1 GiB, or of 5 GiB as in the paper with -5g at the end; ext4-journal-async and
#                 ext4-writeback-async do without the flush before the commit block;
#                 mlfs-ordered mlfs-data mlfs-adaptive mlfs-manylogs are MLFS in its modes;
#                 mlfs-durable is mlfs-manylogs where logs of databases need no place
#   DEVICES       what the file system is on: raw volume; MLFS is on the raw drive
#   CHECKPOINT    when what is logged goes home: full; every:60s for each minute
#   FORMAT        options of `manylogs format` for the volume: none; --shingled for a shingled drive
#   KINDS         what the stream does: read write (read)
#   RATES         40 80 160 320 (320)
#   READERS       of the matrix: read read-8 read-cached read-two (see stream.py)
#   SCHEDULERS    of the matrix: none mq-deadline kyber bfq
#   RUN_SECONDS   of each run: 12 (6)
#   OUT           where the results go: out/effect.jsonl, one object for each run; appended to
#   PLACE         where the image is made (a new directory in /dev/shm), sparse and of the drive's
#                 size, so with the real distances; about 5 GiB of it are written
#
# A run is void, and repeated at most twice, in which the drive was late (p99 above 0.5 ms), or the
# machine so busy that a reader, the writer, or what carries requests between them and the drive
# waited for a processor for a tenth of the time. Needs root, loop devices and FUSE.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/benches/effect
fast=${FAST:-0}
[ "$fast" = 1 ] || fast=
# by_speed NORMAL FAST
by_speed() { if [ "$fast" ]; then echo "$2"; else echo "$1"; fi; }
manylogs=$(realpath "${MANYLOGS:-${CARGO_TARGET_DIR:-target}/release/manylogs}")
drives=${DRIVES:-$(by_speed 'cheetah-15k5 exos-x20' cheetah-15k5)}
systems=${SYSTEMS:-$(by_speed 'ext4-ordered ext4-journal xfs' ext4-ordered)}
devices=${DEVICES:-raw volume}
read -ra format <<<"${FORMAT:-}"
kinds=${KINDS:-$(by_speed 'read write' read)}
rates=${RATES:-$(by_speed '40 80 160 320' 320)}
readers=${READERS:-read read-8 read-cached read-two}
checkpoint=${CHECKPOINT:-full}
schedulers=${SCHEDULERS:-none mq-deadline kyber bfq}
seconds=${RUN_SECONDS:-$(by_speed 12 6)}
out=${OUT:-out/effect.jsonl}
clients=16 # of MongoDB's engine, as in the paper
attempts=3
PATH=$PATH:/usr/sbin:/sbin

for part in common volume file_system postgres mariadb; do
    # shellcheck disable=SC1090
    source "tests/programs/$part.sh"
done

say() { echo "effect: $*"; }
die() {
    say "$*" >&2
    [ ! -s "${log:-}" ] || tail -n 20 "$log" >&2
    exit 1
}

# The threads of the kernel that carry requests between the file system and the server.
carriers() { pgrep "^kworker/u|^kworker/[0-9]+:[0-9]+H|^ksoftirqd|^jbd2/${device#/dev/}-"; }

# They get a real-time priority, like the server's and what uses the file system: else they would
# wait for other work on the machine, and the stream for them. Their I/O stays what it was: without
# a class of its own, that of real-time threads is the first, which mq-deadline and bfq obey.
prefer_carriers() {
    local pid
    for pid in $(carriers); do
        [[ $(ionice --pid "$pid") != none* ]] || ionice --class 2 --classdata 4 --pid "$pid"
        chrt --fifo --pid 1 "$pid"
    done 2>>"$log" || true
}

release_carriers() {
    local pid
    for pid in $(carriers); do
        chrt --other --pid 0 "$pid"
        ionice --class 0 --pid "$pid"
    done 2>/dev/null || true
}

# What they and the server have waited for a processor: a thread and its nanoseconds in each line.
carriers_waited() {
    local file
    for file in $(carriers | sed 's|^|/proc/|') "/proc/$server/task/"*; do
        awk -v thread="${file##*/}" '{ print thread, $2 }' "$file/schedstat" 2>/dev/null || true
    done
}

leave_place() {
    [ -z "$device" ] || echo none >"/sys/block/${device#/dev/}/queue/scheduler" || true
    release_carriers
    clean_up
}

measured() { timeout --foreground "$((seconds * 10 + 60))" "$@"; }
first() { measured ionice --class 2 --classdata 4 chrt --fifo 1 "$@"; }

# put raw|volume|mlfs: a new image, not emulated yet.
put() {
    if [ "$1" = mlfs ]; then
        unserve
        image=$work/volume.img
        rm -f "$image" && truncate -s "$size" "$image" || return 1
        # Of a disk, syncfs reaches a FUSE server; of an image it does not.
        device=$(losetup --find --show --direct-io=off "$image") && image=$device
    elif [ "$1" = volume ]; then
        # Never at night only: a checkpoint in a run would be in the run's figures.
        volume "$size" --physical-sector "$physical" "${format[@]}" &&
            quietly "$manylogs" set "$image" checkpoint="$checkpoint" checkpoint-rate=none && serve
    else
        unserve
        image=$work/volume.img
        rm -f "$image" && truncate -s "$size" "$image" && serve --loop --raw
    fi
}

# emulate raw|volume|mlfs DRIVE
emulate() {
    local raw=()
    if [ "$1" = mlfs ]; then
        options=(--emulate "$2" --no-fit)
        return
    fi
    [ "$1" = volume ] || raw=(--raw)
    stop_server && serve --loop "${raw[@]}" --emulate "$2" --no-fit
}

# Nothing is left to be initialised, or moved, while it is measured.
make_system() {
    case $1 in
    ext4-*)
        local journal_mib=1024
        case $1 in *-5g) journal_mib=5120 ;; esac
        type=ext4 options=(-o noinit_itable,no_prefetch_block_bitmaps)
        options+=(-o "data=$(echo "$1" | cut -d- -f2)")
        case $1 in *-async) options+=(-o journal_async_commit) ;; esac
        make_ext4 "$journal_mib"
        ;;
    xfs)
        type=xfs options=()
        # Directories go to one allocation group after another.
        make_fs xfs -K -d agcount=20 -l size=1g
        ;;
    mlfs-*)
        type=mlfs options=()
        make_ext4 1024
        case $1 in mlfs-adaptive | mlfs-manylogs | mlfs-durable)
            quietly "$manylogs" fs adopt "$device" --yes --physical-sector "$physical" &&
                quietly "$manylogs" fs set "$device" checkpoint="$checkpoint" \
                    checkpoint-rate=none || return 1
            ;;
        esac
        ;;
    *) die "no file system is called $1: ext4-ordered, ext4-journal (-async or -5g)," \
        "ext4-writeback-async, xfs, mlfs-ordered, mlfs-data, mlfs-adaptive, mlfs-manylogs," \
        "mlfs-durable" ;;
    esac
    mount_system
}

# make_ext4 JOURNAL_MIB
make_ext4() {
    # Directories below the root go to groups by a hash of their names: to the same each time.
    local extended=nodiscard,lazy_itable_init=1,lazy_journal_init=1
    extended+=,hash_seed=3f0c6f3e-6b0c-4c0e-9d4e-2f6a3c1b5d70
    make_fs ext4 -b 4096 -E "$extended" -J "size=$1" -i 16777216
}

mount_system() {
    if [ "$type" != mlfs ]; then
        mount_fs "$type" "${options[@]}"
        return
    fi
    : >"$work/where"
    local mode=${system#mlfs-}
    if [ "$mode" = durable ]; then
        mode=manylogs options+=(--durable 'pg_wal/*,WiredTigerLog.*')
    fi
    "$manylogs" fs mount "$device" "$mnt" --mode "$mode" "${options[@]}" \
        >"$work/where" 2>>"$log" &
    server=$!
    local attempt
    for attempt in $(seq 1200); do
        [ ! -s "$work/where" ] || return 0
        kill -0 "$server" 2>/dev/null || break
        sleep 0.05
    done
    say "not mounted after $attempt attempts"
    return 1
}

unmount_system() {
    quietly umount "$mnt" || return 1
    [ "$type" != mlfs ] || { wait "$server" && server=; }
}

# What is logged goes home.
empty_logs() {
    case $what/$system in
    raw/* | mlfs/mlfs-ordered | mlfs/mlfs-data) ;;
    *) quietly "$manylogs" checkpoint "$image" || die "the logs are not emptied" ;;
    esac
}

# The stream's file lies at the beginning of the drive, the small ones all over it. The second
# reader of the matrix has a file elsewhere.
make_files() {
    quietly dd if=/dev/urandom of="$mnt/big" bs=1M count=2048 oflag=direct || return 1
    local i
    if [ "$part" = matrix ]; then
        mkdir "$mnt/second" || return 1
        quietly dd if=/dev/urandom of="$mnt/second/big" bs=1M count=1024 oflag=direct || return 1
    fi
    for i in $(seq 20); do
        mkdir "$mnt/$i" || return 1
        quietly dd if=/dev/zero of="$mnt/$i/small" bs=1M count=4 conv=fsync || return 1
    done
}

# run KIND WITH [RATE]: a stream (none, read, write) with what is beside it (none, small, pg, ...),
# both for as long; again if it is void. One that was made before is not made again, unless a part
# makes it twice.
run() {
    local attempt
    made "$@" && return
    [ -z "$dry" ] || { missing=1 && return; }
    for attempt in $(seq "$attempts"); do
        run_once "$@" || die "$* failed"
        note "$@" "$attempt" && return
    done
    void=$((void + 1))
}

# Of a part that is only asked what is missing, nothing is carried out.
live() { [ "$dry" ] || "$@"; }

# made KIND WITH [RATE]: whether the results had it when this began.
made() {
    "$here/note.py" --has "$work/made.jsonl" "$part" "$drive" "$system" "$what" "$seconds" "$@"
}

run_once() {
    local stream='' code=0 files=("$mnt/big")
    [ "$1" != read-two ] || files+=("$mnt/second/big")
    sync -f "$mnt"
    prefer_carriers
    "$manylogs" status "$image" --json --forget-lateness >"$work/before.json"
    carriers_waited >"$work/before.waited"
    rm -f "$work/stream.json" "$work/beside.json"
    if [ "$1" != none ]; then
        first "$here/stream.py" "$1" "$seconds" "${files[@]}" >"$work/stream.json" &
        stream=$!
    fi
    case $2 in
    none) ;;
    small) first "$here/small-writer.py" "$mnt" "$3" "$seconds" >"$work/beside.json" ;;
    pg) run_pgbench ;;
    wt-*) measured "$work/wiredtiger-driver" "$mnt/wt" "${2#wt-}" "$seconds" "$clients" \
        >"$work/beside.json" ;;
    esac || code=$?
    [ -z "$stream" ] || wait "$stream" || code=$?
    carriers_waited >"$work/after.waited"
    "$manylogs" status "$image" --json >"$work/after.json"
    return "$code"
}

run_pgbench() {
    rm -f "$work"/pg/times*
    measured "${as_pg[@]}" pgbench -n -c 4 -j 2 -T "$seconds" -l --log-prefix="$work/pg/times" \
        postgres >"$work/pgbench.log" 2>&1 || { cat "$work/pgbench.log" >>"$log" && return 1; }
    cat "$work"/pg/times* >"$work/beside.json"
}

# Appends the run to the results and prints it; fails if it is void.
note() {
    "$here/note.py" "$work" "$out" "$part" "$drive" "$system" "$what" "$seconds" "$@"
}

# The metadata of the small files is read before anything is measured: the first run beside a
# stream would else be the one that pays for it.
warm_up() { quietly "$here/small-writer.py" "$mnt" 40 1; }

small() {
    local kind rate
    live warm_up
    for kind in $kinds; do
        run "$kind" none
        for rate in $rates; do
            run "$kind" small "$rate"
        done
        # Once more, as it counts for all others.
        run "$kind" none
    done
}

schedule_by() {
    live quietly tee "/sys/block/${device#/dev/}/queue/scheduler" <<<"$1" ||
        die "the kernel has no scheduler $1"
}

# The raw drive below each scheduler is one image: only the scheduler changes.
matrix() {
    local reader scheduler
    for scheduler in $(if [ "$what" = raw ]; then echo "$schedulers"; else echo none; fi); do
        schedule_by "$scheduler"
        [ "$scheduler" = none ] || what=raw-$scheduler
        for reader in $readers; do
            # What a reader gets alone is measured without a scheduler.
            [ "$scheduler" != none ] || run "$reader" none
            run "$reader" small 320
        done
        what=${what%%-*}
    done
    # The next user of the loop device should find it as it was.
    schedule_by none
}

databases() {
    local store
    # Of a database in use the disk sees the writes.
    live find "$mnt/pg" "$mnt/wt" -type f -exec cat {} + >/dev/null
    run read none
    run read none
    live start_postgres || die "PostgreSQL does not start"
    run none pg
    run read pg
    live stop_postgres || die "PostgreSQL does not stop"
    for store in wt-33 wt-1; do
        run none "$store"
        run read "$store"
    done
}

make_databases() {
    make_cluster 'shared_buffers = 256MB' 'max_wal_size = 1GB' && start_postgres &&
        quietly "${as_pg[@]}" pgbench -i -q -s 10 postgres && stop_postgres &&
        mkdir "$mnt/wt" && quietly "$work/wiredtiger-driver" "$mnt/wt" load
}

# on PART raw|volume: everything of the part on one device.
on() {
    part=$1 what=$2 dry=1 missing=
    "$part"
    dry=
    [ "$missing" ] || { say "$part on $drive, $system, $what: made before" && return; }
    say "$part on $drive, $system, $what"
    : >"$log"
    put "$what" && make_system "$system" && make_files || die "cannot make $system on $what"
    [ "$part" != databases ] || make_databases || die "cannot make the databases"
    # As after a night: what was made is home, and not in the logs.
    empty_logs
    unmount_system && emulate "$what" "$drive" && mount_system || die "cannot emulate $drive"
    "$part"
    if [ "$what" = mlfs ]; then
        say_durable
        unmount_system || die "cannot unmount"
        forget_device
        return
    fi
    quietly umount "$mnt" || die "cannot unmount"
    if [ "$what" = volume ]; then
        local began=$EPOCHREALTIME
        empty_logs
        say "the logs were emptied in $(echo "$EPOCHREALTIME $began" | awk '{ print $1 - $2 }') s"
    fi
    stop_server || die "the server does not end"
}

# What the logs keep of files that need no place, and what of them went home.
say_durable() {
    local counts
    counts=$("$manylogs" fs status "$mnt" --json | python3 -c '
import json, sys
status = json.load(sys.stdin)
for name in ("live", "home", "moved"):
    print(name, (status.get(f"o_dur_{name}_bytes") or 0) >> 10, "KiB", end=" ")') &&
        say "$system: files that need no place: $counts"
}

# A number of the drive's profile.
# The last one counts: what the host sees of a shingled drive comes behind the medium's size.
drive_number() {
    sed -n "s/^$1 = \([0-9_]*\)$/\1/p" "profiles/$drive.toml" | tr -d _ | tail -n 1 | grep .
}

need() { has "$1" || die "$1 is missing: apt-get install $2"; }

[ "$(id -u)" = 0 ] || die "needs root: loop devices and mounts"
[ -x "$manylogs" ] || die "there is no program $manylogs: cargo build --release"
make_place "${PLACE:-$(mktemp -d /dev/shm/manylogs-effect.XXXXXX)}"
trap leave_place EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- small matrix databases
parts=("$@")
for part in "${parts[@]}"; do
    case $part in
    small | matrix) ;;
    databases)
        find_postgres || die "PostgreSQL is missing: apt-get install postgresql"
        need gcc gcc
        [ -e /usr/include/wiredtiger.h ] ||
            die "MongoDB's engine is missing: apt-get install libwiredtiger-dev"
        ;;
    *) die "no part is called $part: small, matrix, databases" ;;
    esac
done
need mkfs.ext4 e2fsprogs
need mkfs.xfs xfsprogs
need python3 python3
mkdir -p "$(dirname "$out")"
# What is measured goes before other work on the machine.
renice -n -10 $$ >/dev/null
case " ${parts[*]} " in *' databases '*)
    gcc -O2 -Wall -pthread "$here/wiredtiger-driver.c" -o "$work/wiredtiger-driver" -lwiredtiger
    ;;
esac
cp "$out" "$work/made.jsonl" 2>/dev/null || : >"$work/made.jsonl"
void=0
for drive in $drives; do
    sectors=$(drive_number capacity_sectors) && physical=$(drive_number physical_sector_bytes) ||
        die "there is no drive $drive"
    size=$((sectors * 512))
    for system in $systems; do
        for each in "${parts[@]}"; do
            [ "$each" != matrix ] || [ "$system" = ext4-ordered ] || continue
            case $system in mlfs-*) on_devices=mlfs ;; *) on_devices=$devices ;; esac
            for device_kind in $on_devices; do
                on "$each" "$device_kind"
            done
        done
    done
done
say "results: $out; $((SECONDS / 60)) min $((SECONDS % 60)) s"
if [ "$void" != 0 ]; then
    say "$void runs are void after $attempts attempts: the machine, or its host, is too busy"
    exit 1
fi
