#!/bin/bash
# What every script here needs. Part of run.sh, and of benches/effect/run.sh.

# Of the server in volume.sh.
image='' server='' device='' export_file=''
others=() # processes that are ended at the end

# make_place DIRECTORY: everything that is made is below it.
make_place() {
    place=$1
    mkdir -p "$place"
    work=$(mktemp -d "$place/run.XXXXXX")
    chmod 755 "$place" "$work"
    mnt=$work/mnt
    log=$work/log
    mkdir "$mnt"
}

has() { command -v "$1" >/dev/null; }
limited() { timeout --foreground --kill-after=10 "${limit:-7200}" "$@"; }
# Runs a command with its output in the log.
quietly() { echo "+ $*" >>"$log" && limited "$@" >>"$log" 2>&1; }
