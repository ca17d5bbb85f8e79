#!/bin/bash
# Which settings of a file system cost how many records of the volume for a durable operation: what
# the table in docs/operations.md holds. Counts, so it does not matter how busy the machine is.
#
#   benches/effect/settings.sh [SETTINGS...]      (all of them if none is named; root)
#
# From the environment:
#   MANYLOGS    the program (target/release/manylogs)
#   COUNT       of each operation (200)
#   OPERATIONS  append create overwrite fdatasync syncfs (see sync-operations.py)
#   OUT         where the counts go: out/settings.jsonl, one object for each; appended to
#   PLACE       where the image is made (a new directory in /dev/shm)
#
# A volume of its own for each line of the table, over a loop device, which has no FUA: the kernel
# sends a write and a flush in its place.
set -euo pipefail
cd "$(dirname "$0")/../.."
here=$PWD/benches/effect
manylogs=$(realpath "${MANYLOGS:-${CARGO_TARGET_DIR:-target}/release/manylogs}")
count=${COUNT:-200}
operations=${OPERATIONS:-append create overwrite fdatasync syncfs}
out=${OUT:-out/settings.jsonl}
PATH=$PATH:/usr/sbin:/sbin

for part in common volume file_system postgres mariadb; do
    # shellcheck disable=SC1090
    source "tests/programs/$part.sh"
done

# Name; type; options of mkfs; options of mount. EXTERNAL is a device that is no volume, FAST makes
# an ext4 with fast commits.
settings() {
    local fast='-J size=128,fast_commit_size=8 -O fast_commit'
    sed "s/FAST/$fast/" <<'LINES'
ext4-ordered; ext4; -J size=128; data=ordered
ext4-writeback; ext4; -J size=128; data=writeback
ext4-writeback-async; ext4; -J size=128; data=writeback,journal_async_commit
ext4-journal; ext4; -J size=128; data=journal
ext4-journal-async; ext4; -J size=128; data=journal,journal_async_commit
ext4-ordered-async; ext4; -J size=128; data=ordered,journal_async_commit
ext4-fast; ext4; FAST; data=ordered
ext4-writeback-fast; ext4; FAST; data=writeback
ext4-writeback-async-fast; ext4; FAST; data=writeback,journal_async_commit
ext4-journal-fast; ext4; FAST; data=journal
ext4-external; ext4; -J device=EXTERNAL; data=ordered
ext4-lazytime; ext4; -J size=128; data=ordered,lazytime
ext4-nobarrier; ext4; -J size=128; data=ordered,nobarrier
ext4-no-journal; ext4; -O ^has_journal; noatime
xfs; xfs; -l size=128m; logbsize=32k
xfs-logbsize; xfs; -l size=128m; logbsize=256k
xfs-logbufs; xfs; -l size=128m; logbufs=2,logbsize=32k
xfs-small-log; xfs; -l size=64m; logbsize=32k
xfs-wsync; xfs; -l size=128m; wsync
xfs-lazytime; xfs; -l size=128m; lazytime
xfs-external; xfs; -l logdev=EXTERNAL,size=128m; logdev=EXTERNAL
LINES
}

say() { echo "settings: $*" >&2; }
die() {
    say "$*"
    [ ! -s "${log:-}" ] || tail -n 20 "$log" >&2
    exit 1
}

leave() {
    [ -z "$external" ] || { unmount "$mnt" && losetup -d "$external"; }
    clean_up
}

# measure NAME TYPE MKFS MOUNT
measure() {
    local name=$1 type=$2 make options=$4 operation
    : >"$log"
    read -ra make <<<"${3//EXTERNAL/$external}"
    volume 4G && serve || die "no volume is served"
    if [[ $3 == *EXTERNAL* ]]; then
        if [ "$type" = ext4 ]; then
            quietly mkfs.ext4 -q -F -O journal_dev -b 4096 "$external" || die "no journal is made"
        else
            quietly wipefs -a "$external" || die "the external log is not emptied"
        fi
    fi
    # Nothing is left to be initialised in the background while operations are counted.
    if [ "$type" = ext4 ]; then
        make+=(-b 4096 -E "nodiscard,lazy_itable_init=0,lazy_journal_init=0")
        options+=,noinit_itable,no_prefetch_block_bitmaps
    fi
    make_fs "$type" "${make[@]}" || die "$name: no file system is made"
    if ! mount_fs "$type" -o "noatime,${options//EXTERNAL/$external}"; then
        say "$name: the kernel refuses to mount with $options"
        return 0
    fi
    for operation in $operations; do
        count_records "$operation" || die "$name: $operation failed"
    done
    quietly umount "$mnt" && fs_check "$type" || die "$name: not whole afterwards"
    unserve
}

fs_check() {
    if [ "$1" = xfs ] && [[ $name == *external* ]]; then
        quietly xfs_repair -n -l "$external" "$device"
    else
        fs_is_whole "$1"
    fi
}

# Between two looks at the counters there is nothing but the operations.
count_records() {
    local line
    coproc CLIENT { exec "$here/sync-operations.py" "$mnt" "$1" "$count" 2>>"$log"; }
    local from=${CLIENT[0]} to=${CLIENT[1]} client=$CLIENT_PID
    read -r line <&"$from" || return 1
    "$manylogs" status "$image" --json >"$work/before.json" || return 1
    echo >&"$to"
    read -r line <&"$from" || return 1
    "$manylogs" status "$image" --json >"$work/after.json" || return 1
    echo >&"$to"
    wait "$client" || return 1
    "$here/settings-table.py" note "$work" "$out" "$name" "$1" "$count"
}

[ "$(id -u)" = 0 ] || die "needs root: loop devices and mounts"
[ -x "$manylogs" ] || die "there is no program $manylogs: cargo build --release"
for program in mkfs.ext4 mkfs.xfs python3; do
    has "$program" || die "$program is missing: apt-get install e2fsprogs xfsprogs python3"
done
make_place "${PLACE:-$(mktemp -d /dev/shm/manylogs-settings.XXXXXX)}"
external=
trap leave EXIT
trap 'exit 130' INT TERM
truncate -s 256M "$work/external.img"
external=$(losetup -f --show "$work/external.img")
mkdir -p "$(dirname "$out")"
known=$(settings | cut -d ';' -f 1)
for name in "$@"; do
    grep -qxF "$name" <<<"$known" || die "no settings are called $name: ${known//$'\n'/, }"
done
while IFS=';' read -r name type make options; do
    case " $* " in
    '  ' | *" $name "*) measure "$name" "${type# }" "${make# }" "${options# }" ;;
    esac
done < <(settings)
"$here/settings-table.py" table "$out"
