#!/bin/bash
# fio, with verification of what it has written. Part of run.sh.

# fio_verify NAME OPTION...: what it writes, it reads back and compares; adds to the figures.
fio_verify() {
    local name=$1 code=0
    shift
    echo "+ fio $*" >>"$log"
    limited fio --name="$name" --verify=crc32c --verify_fatal=1 --do_verify=1 --direct=1 \
        --loops="$fio_passes" --randseed="$seed" --output-format=json --output="$work/fio.json" \
        "$@" >>"$log" 2>&1 || code=$?
    python3 - "$work/fio.json" "${least_read:-0.5}" >"$work/fio.figures" 2>>"$log" <<'PYTHON' ||
import json
import sys
text = open(sys.argv[1]).read()
job = json.loads(text[text.index("{"):])["jobs"][0]
if job["error"]:
    raise SystemExit(f"fio: error {job['error']}")
wrote, read = (job[way]["io_bytes"] for way in ("write", "read"))
if read < wrote * float(sys.argv[2]):
    raise SystemExit(f"fio: of {wrote} bytes only {read} were read")
print(f"{wrote >> 20} MiB written, {read >> 20} MiB verified")
PYTHON
        code=1
    [ "$code" = 0 ] || grep -v '^ *"' "$work/fio.json" | grep -i '[a-z]' >>"$log" || true
    figures=$(cat "$work/fio.figures")
    return "$code"
}

# The size of one pass.
pass_size() {
    case $1 in
    512 | 1k) echo 4m ;;
    4k) echo 16m ;;
    16k) echo 48m ;;
    *) echo 128m ;;
    esac
}

mixed=512/20:1k/10:4k/40:16k/15:64k/10:256k/4:1m/1

raw() {
    has fio || { skip "raw: fio is missing" && return; }
    : >"$log"
    volume 6G && serve || { fail "raw: no server" && return; }
    local depth bs rw options
    for depth in 1 16; do
        for rw in randwrite write; do
            for bs in 512 1k 4k 16k 64k 256k 1m mixed; do
                options=(--bs="$bs" --size="$(pass_size "$bs")")
                [ "$bs" != mixed ] || options=(--bssplit="$mixed" --size=64m)
                # A region of its own for each, so that all of them can be checked at the end.
                options+=(--offset="$(((RANDOM % 5) * 1024))m" --ioengine=libaio)
                check "raw: fio $rw $bs, depth $depth" fio_verify raw --filename="$device" \
                    --rw="$rw" --iodepth="$depth" "${options[@]}"
            done
        done
    done
    # Of one size and without reads between: for others fio finds faults in plain files too.
    check "raw: fio overwrites, io_uring" fio_verify raw --filename="$device" --rw=randwrite \
        --ioengine=io_uring --iodepth=16 --bs=4k --size=32m --norandommap \
        --serialize_overlap=1
    check "raw: fio discards before each write" fio_verify raw --filename="$device" \
        --rw=randtrimwrite --ioengine=libaio --iodepth=8 --bs=4k --size=64m
    if has blkdiscard; then
        check "raw: blkdiscard" raw_discard
    else
        skip "raw: blkdiscard is missing"
    fi
    check "raw: fio O_DSYNC" fio_verify raw --filename="$device" --rw=randwrite \
        --ioengine=libaio --sync=dsync --iodepth=4 --bs=4k --size=8m
    check "raw: fio, orderly restart between write and verify" raw_across restart_orderly
    check "raw: fio, kill -9 between flush and verify" raw_across restart_killed
    unserve
    check "raw: manylogs check" volume_is_whole
}

# What is discarded reads as zeroes, before and after a kill, and what lies around it stays.
raw_discard() {
    local before after
    fio_verify raw --filename="$device" --rw=randwrite --ioengine=libaio --iodepth=8 --bs=4k \
        --size=64m || return 1
    before=$(around_discarded)
    quietly blkdiscard --offset $((16 << 20)) --length $(((8 << 20) + 512)) "$device" || return 1
    sync "$device"
    after=$(around_discarded)
    discarded_is_zero && [ "$before" = "$after" ] || return 1
    restart_killed || return 1
    after=$(around_discarded)
    discarded_is_zero && [ "$before" = "$after" ] || return 1
    figures="8 MiB read as zeroes, 56 MiB around them the same, also after kill -9"
}

discarded_is_zero() {
    quietly cmp --bytes=$(((8 << 20) + 512)) --ignore-initial=$((16 << 20)):0 "$device" /dev/zero
}

around_discarded() {
    { dd if="$device" bs=1M count=16 iflag=direct &&
        dd if="$device" bs=512 skip=$(((24 << 11) + 1)) count=$(((40 << 11) - 1)); } 2>/dev/null |
        sha256sum
}

restart_orderly() { stop_server && serve; }

raw_across() {
    local of=(--rw=randwrite --ioengine=libaio --iodepth=16 --bssplit="$mixed" --size=128m)
    least_read=0 fio_verify raw --filename="$device" "${of[@]}" --do_verify=0 --end_fsync=1 \
        --loops=1 || return 1
    "$1" || return 1
    fio_verify raw --filename="$device" "${of[@]}" --loops=1 --verify_only
}
