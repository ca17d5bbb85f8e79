# Makes of the kernel's trace of block events what crates/drives/disk/tests/kernel.rs reads, a line each:
#
#   MICROSECONDS a R|W|U|F [SECTOR SECTORS]   arrives: read, write, write with FUA, flush
#   MICROSECONDS i R|W|F [SECTOR SECTORS]     goes to the driver, which takes it
#   MICROSECONDS c R|W|F [SECTOR SECTORS]     the drive has completed it
#   MICROSECONDS e [SECTOR]                   a request that waited for a flush has ended
#
# A request arrives when the elevator gets it, a flush when it is asked for. An issue that the driver
# refused (the kernel puts the request back) is none.
/^#/ { next }
{
    for (at = 1; at <= NF && $at !~ /^block_/; at++) ;
    if (at > NF) next
    event = $at
    sub(/:$/, "", event)
    time = $(at - 1)
    sub(/:$/, "", time)
    split(time, parts, ".")
    us = parts[1] * 1000000 + parts[2]
    rwbs = $(at + 2)
    # What follows the bytes and the empty parentheses, if there are any: SECTOR + SECTORS.
    for (plus = at + 3; plus <= NF && $plus != "+"; plus++) ;
    sector = $(plus - 1)
    sectors = $(plus + 1)
}
event == "block_bio_queue" {
    if (sectors == 0) { lines[++n] = us " a F"; next }
    fua[sector] = (rwbs ~ /.F/)
    next
}
event == "block_bio_backmerge" || event == "block_bio_frontmerge" { merges++ }
event == "block_rq_insert" {
    kind = rwbs ~ /^R/ ? "R" : (fua[sector] ? "U" : "W")
    lines[++n] = us " a " kind " " sector " " sectors
}
event == "block_rq_issue" {
    if (rwbs ~ /^F/) { lines[++n] = us " i F"; issued["F"] = n; next }
    kind = rwbs ~ /^R/ ? "R" : "W"
    lines[++n] = us " i " kind " " sector " " sectors
    issued[kind " " sector] = n
}
event == "block_rq_requeue" {
    kind = rwbs ~ /^F/ ? "F" : (rwbs ~ /^R/ ? "R " : "W ") sector
    delete lines[issued[kind]]
}
event == "block_rq_complete" {
    if (rwbs ~ /^F/) { lines[++n] = us " c F"; next }
    if (sectors == 0) { lines[++n] = us " e " sector; next }
    kind = rwbs ~ /^R/ ? "R" : "W"
    lines[++n] = us " c " kind " " sector " " sectors
}
END {
    if (merges > 0) print "# " merges " requests were merged: not what is to be compared" | "cat >&2"
    for (i = 1; i <= n; i++) if (i in lines) print lines[i]
}
