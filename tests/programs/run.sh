#!/bin/bash
# Proof by others' programs: fio, fsx, stress-ng, ext4, XFS, PostgreSQL, libnbd and QEMU use served
# volumes, and find no fault in what they hold, also after servers that were killed.
#
#   tests/programs/run.sh [CHECK...]       (make programs; FAST=1 for a few minutes instead)
#
# Checks; all of them if none is named:
#   raw    fio with verification on the loop device: patterns, block sizes, depths, discards,
#          what is there after an orderly restart and after kill -9
#   ext4   the file system over a loop device: fio, fsx, stress-ng, fsck, checksums of a tree of
#          files after a remount and after kill -9
#   xfs    the same
#   fsx-ext4, fsx-xfs   fsx and fsck alone
#   pg     PostgreSQL on both while server and postmaster are killed: every acknowledged row is
#          there, the sums of pgbench agree, pg_checksums and pg_amcheck find nothing
#   pg-mlfs  the same on MLFS, where its log has a place, and where it needs none (--durable)
#   mariadb-mlfs  MariaDB on MLFS, the same: no row is missing, no transaction is half there
#   kills  kill -9 of the server under writers that know what they were promised (kills.py)
#   everest  a base volume in a network namespace borrows three stores in others: kill -9 of any of
#          their servers, links that are cut, held, slow or dark, under writers that know what they
#          were promised, ext4 and fio (everest_kills.py)
#   everest-fsx  fsx on ext4 on a base volume, while its stores come and go and are killed
#   short  fio, fsx and fsck on ext4, as with every change; not among the checks of no name, and
#          skipped where it cannot run
#   mlfs   the file system of manylogs fs mount: pjdfstest, fsx, O_DIRECT beside mmap (mixed.py),
#          stress-ng, fsck, kills (mlfs_kills.py), in both modes of its journal, near the head, and
#          below a root that hands user.manylogs.durable down; images of many features, filled by
#          the kernel and read by MLFS and the other way round (trees.py); a history of git checked
#          out on both (checkouts.py)
#   crowd  on a mounted file system in two modes and without caches: thousands of processes at once
#          (crowd.py), and a large directory that is listed while others change it
#          (large_directory.py)
#   nbd    over NBD, by the engine and by nbdkit: fio, nbdinfo, nbdcopy, qemu-img, and a file system through nbdfuse
#
# From the environment:
#   MANYLOGS      the program (target/release/manylogs), with the plugin for nbdkit beside it
#   FAST          1 for the short campaign
#   ROUNDS        kills of `kills`, and of each mode of `mlfs` (200; FAST: 20), and rounds of
#                 `everest` (200; FAST: 12)
#   TREES         images of `mlfs` that both fill and read (200; FAST: 12)
#   HISTORY       a repository of git for `mlfs` (this one), with the whole of its history
#   REVISIONS     of it that are checked out (24; FAST: 6)
#   PROCESSES     of `crowd` (10,000; FAST: 500)
#   NAMES         of the directory of `crowd` (1,000,000; FAST: 20,000)
#   PG_ROUNDS     kills of `pg` on each file system (10; FAST: 3)
#   FSX_OPS       operations of each fsx (1,000,000; FAST: 50,000)
#   FIO_PASSES    how often each fio run writes and verifies (5; FAST: 1)
#   SEED          of everything that is drawn (1)
#   PLACE         where the images are made (a new directory in /var/tmp); sparse, up to 8 GiB
#
# One line for each check, with figures; what failed keeps its log, and the exit code is 1. What
# needs a program that is not there is skipped, and counted. Needs root and loop devices.
set -euo pipefail
cd "$(dirname "$0")/../.."
say() { echo "programs: $*"; }
if [ "$(id -u)" != 0 ] || [ ! -e /dev/fuse ] || [ ! -e /dev/loop-control ]; then
    [ "${1:-}" = short ] && say "0 passed, 0 failed, 1 skipped: no root, FUSE or loop devices" && exit
    say "needs root, FUSE and loop devices"
    exit 1
fi
here=$PWD/tests/programs
fast=${FAST:-0}
[ "$fast" = 1 ] || fast=
manylogs=$(realpath "${MANYLOGS:-${CARGO_TARGET_DIR:-target}/release/manylogs}")
[ -x "$manylogs" ] || { say "there is no program $manylogs (MANYLOGS)" && exit 1; }
rounds=${ROUNDS:-$([ "$fast" ] && echo 20 || echo 200)}
trees=${TREES:-$([ "$fast" ] && echo 12 || echo 200)}
history=${HISTORY:-$PWD}
revisions=${REVISIONS:-$([ "$fast" ] && echo 6 || echo 24)}
processes=${PROCESSES:-$([ "$fast" ] && echo 500 || echo 10000)}
names=${NAMES:-$([ "$fast" ] && echo 20000 || echo 1000000)}
pg_rounds=${PG_ROUNDS:-$([ "$fast" ] && echo 3 || echo 10)}
fsx_ops=${FSX_OPS:-$([ "$fast" ] && echo 50000 || echo 1000000)}
fio_passes=${FIO_PASSES:-$([ "$fast" ] && echo 1 || echo 5)}
stress_seconds=$([ "$fast" ] && echo 20 || echo 60)
seed=${SEED:-1}
PATH=$PATH:/usr/sbin:/sbin:${CARGO_HOME:-$HOME/.cargo}/bin
RANDOM=$seed
for part in common volume fio file_system mlfs postgres mariadb nbd; do
    # shellcheck disable=SC1090
    source "$here/$part.sh"
done
make_place "${PLACE:-$(mktemp -d /var/tmp/manylogs-programs.XXXXXX)}"
passed=0 failed=0 skipped=0

pass() { passed=$((passed + 1)) && say "pass  $*"; }
skip() { skipped=$((skipped + 1)) && say "skip  $*"; }

fail() {
    failed=$((failed + 1))
    local kept
    kept=$place/failed.$failed.log
    cp "$log" "$kept"
    say "FAIL  $* (seed $seed; log: $kept)"
    tail -n 15 "$log" | sed 's/^/    /'
}

# check NAME FUNCTION ARGUMENTS...: passes with the figures that the function leaves in $figures.
check() {
    local name=$1
    shift
    : >"$log"
    figures=''
    if "$@"; then pass "$name${figures:+: $figures}"; else fail "$name${figures:+: $figures}"; fi
}

kills() {
    check "kills: $rounds rounds" kill_rounds
}

kill_rounds() {
    unserve
    image=$work/kills.img
    rm -f "$image"
    # Small logs, so that they fill and are checkpointed.
    quietly "$manylogs" format "$image" --size 4G --sparse --log 1M --group 32M || return 1
    local code=0
    limit=$((60 + rounds * 15)) limited python3 "$here/kills.py" "$manylogs" "$image" "$rounds" \
        "$seed" >"$work/kills.out" 2>>"$log" || code=$?
    figures=$(tail -n 1 "$work/kills.out")
    return "$code"
}

everest() {
    local tool
    for tool in ip nsenter mkfs.ext4 fio; do
        has "$tool" || { skip "everest: $tool is missing" && return; }
    done
    # Where no namespace can be made.
    if ! unshare --net true 2>/dev/null; then
        skip "everest: no network namespaces" && return
    fi
    local rounds=${ROUNDS:-$([ "$fast" ] && echo 12 || echo 200)}
    check "everest: $rounds rounds" everest_rounds "$rounds"
}

everest_fsx() {
    local tool
    for tool in ip nsenter mkfs.ext4 fsx; do
        has "$tool" || { skip "everest-fsx: $tool is missing" && return; }
    done
    if ! unshare --net true 2>/dev/null; then
        skip "everest-fsx: no network namespaces" && return
    fi
    # Each round has 10,000 operations.
    check "everest-fsx: $fsx_ops operations" everest_rounds "$((fsx_ops / 10000))" fsx
}

# everest_rounds ROUNDS [KIND...]
everest_rounds() {
    local code=0 folder=$work/everest
    rm -rf "$folder"
    mkdir "$folder"
    limit=$((300 + $1 * 30)) limited python3 "$here/everest_kills.py" "$manylogs" "$folder" "$1" \
        "$seed" "${@:2}" >"$work/everest.out" 2>>"$log" || code=$?
    figures=$(tail -n 1 "$work/everest.out")
    [ "$code" = 0 ] || tail -n 200 "$folder/log" >>"$log"
    return "$code"
}

trap clean_up EXIT
trap 'exit 130' INT TERM
[ $# -gt 0 ] || set -- raw ext4 xfs pg pg-mlfs mariadb-mlfs kills everest everest-fsx mlfs crowd nbd
for name; do
    case $name in
    raw | kills | everest | mlfs | crowd | nbd | short) "$name" ;;
    ext4 | xfs) file_system "$name" ;;
    everest-fsx) everest_fsx ;;
    fsx-ext4 | fsx-xfs) fsx_alone "${name#fsx-}" ;;
    pg) postgres ;;
    pg-mlfs) postgres_mlfs ;;
    mariadb-mlfs) mariadb_mlfs ;;
    *) say "no check is called $name" && exit 1 ;;
    esac
done
say "$passed passed, $failed failed, $skipped skipped in $((SECONDS / 60)) min $((SECONDS % 60)) s"
[ "$failed" = 0 ]
