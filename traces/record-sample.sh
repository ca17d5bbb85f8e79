#!/bin/bash
# Records traces/pgbench-beside-reader.trace.zst again: a PostgreSQL database with synchronous
# commits beside a large sequential reader, on one ext4 file system of a (sparse) 1 TB disk.
#
# Both are held to rates that one 7200 rpm disk could carry; see README.md beside this file.
# Needs root, PostgreSQL with pgbench, losetup, mkfs.ext4, python3, and 6 GB in $WORK_BASE.
#
#   sudo traces/record-sample.sh [OUT.trace.zst]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
out=${1:-$here/pgbench-beside-reader.trace.zst}
seconds=${SECONDS_RECORDED:-300}
warmup=${WARMUP_SECONDS:-60}
transactions_per_s=${TPS:-16}
reader_mb_per_s=${READER_MB_PER_S:-40}
scale=${PGBENCH_SCALE:-50}
read_mib=${READ_MIB:-3072}
# The reader's file is this large, as on a disk in use; only the part read is ever written.
archive_gib=${ARCHIVE_GIB:-200}
read_at_gib=${READ_AT_GIB:-100}
disk_bytes=1000204886016
work_base=${WORK_BASE:-/var/tmp}

fail() { echo "record-sample: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "needs root (loop device, mount, tracefs)"
for tool in losetup mkfs.ext4 mount umount fallocate filefrag runuser python3; do
    command -v "$tool" >/dev/null || fail "needs $tool"
done
pg=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -1)
[ -n "$pg" ] || fail "needs PostgreSQL with pgbench (apt-get install postgresql postgresql-contrib)"
id postgres >/dev/null 2>&1 || fail "needs the user postgres"
if [ -n "${TRACE_RECORD:-}" ]; then
    record=$TRACE_RECORD
else
    (cd "$here/.." && cargo build --release -p manylogs-workload --example trace_record)
    record=${CARGO_TARGET_DIR:-$here/../target}/release/examples/trace_record
fi

work=$(mktemp -d "$work_base/manylogs-sample.XXXXXX")
mnt=$work/mnt
loop=
pgbench_pid=
reader_pid=
as_postgres() { runuser -u postgres -- "$@"; }

clean_up() {
    status=$?
    trap - EXIT
    set +e
    [ -n "$reader_pid" ] && kill "$reader_pid" 2>/dev/null
    [ -n "$pgbench_pid" ] && kill "$pgbench_pid" 2>/dev/null
    wait 2>/dev/null
    [ -f "$mnt/db/postmaster.pid" ] && as_postgres "$pg/pg_ctl" -D "$mnt/db" -m immediate -w stop
    mountpoint -q "$mnt" && umount "$mnt"
    [ -n "$loop" ] && losetup -d "$loop"
    rm -rf "$work"
    exit "$status"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

chmod 755 "$work"
mkdir "$mnt"
truncate -s "$disk_bytes" "$work/disk.img"
loop=$(losetup -f --show --direct-io=on "$work/disk.img")
echo 1 > "/sys/block/${loop#/dev/}/queue/rotational"
# Few inodes and no lazy initialisation: mkfs writes little, and nothing writes on later.
mkfs.ext4 -q -T largefile4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$loop"
mount -o noatime "$loop" "$mnt"

mkdir "$mnt/db"
chown postgres: "$mnt/db"
chmod 700 "$mnt/db"
as_postgres "$pg/initdb" -D "$mnt/db" -A trust -k >/dev/null
cat >> "$mnt/db/postgresql.conf" <<CONF
listen_addresses = ''
unix_socket_directories = '$mnt/db'
synchronous_commit = on
fsync = on
shared_buffers = 256MB
# So that the recorded minutes hold whole checkpoints.
checkpoint_timeout = 2min
CONF
as_postgres "$pg/pg_ctl" -D "$mnt/db" -w -l "$mnt/db/log" start >/dev/null
pgbench() { as_postgres "$pg/pgbench" -h "$mnt/db" "$@" postgres; }
pgbench -i -q -s "$scale" 2>&1 | tail -1
sync
# The archive is allocated whole, so that the part read lies as far from the database as the
# file system puts it, not in the nearest hole.
fallocate -l "${archive_gib}G" "$mnt/archive"
dd if=/dev/urandom of="$mnt/archive" bs=1M count="$read_mib" seek=$((read_at_gib * 1024)) \
    status=none conv=notrunc,fsync
psql() { as_postgres psql -qtA -h "$mnt/db" postgres -c "$1"; }
psql checkpoint
# First physical address of a file, from an offset on, in GiB.
address_gib() {
    filefrag -b1073741824 -e "$1" | awk -v at="$2" '
        $1 ~ /^[0-9]+:$/ { gsub(/[.:]/, " "); if ($3 >= at) { print $4; exit } }'
}
accounts=$mnt/db/$(psql "select pg_relation_filepath('pgbench_accounts')")
database_at=$(address_gib "$accounts" 0)
archive_at=$(address_gib "$mnt/archive" "$read_at_gib")
echo "accounts table at $database_at GiB, part read at $archive_at GiB of the disk"
apart=$((archive_at - database_at))
[ "${apart#-}" -ge 30 ] || fail "the file system put both within 30 GiB: change READ_AT_GIB"

total=$((warmup + seconds + 20))
pgbench -n -c 4 -j 1 --rate="$transactions_per_s" -T "$total" > "$work/pgbench.log" 2>&1 &
pgbench_pid=$!
python3 "$here/paced-reader.py" "$mnt/archive" "$read_at_gib" "$read_mib" "$reader_mb_per_s" \
    "$total" &
reader_pid=$!
sleep "$warmup"
# The recording is written outside the recorded file system.
"$record" "$loop" "$out.part" "$seconds"
mv "$out.part" "$out"
wait "$pgbench_pid" || true
pgbench_pid=
grep -E 'tps|latency average' "$work/pgbench.log" || cat "$work/pgbench.log"
ls -l "$out"
