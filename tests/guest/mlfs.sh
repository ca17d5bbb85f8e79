#!/bin/bash
# Shows that MLFS works with a kernel that lacks what newer ones have: FUSE over io_uring (Linux
# 6.14) and the request to forget inodes (6.18). A guest with Debian's 6.1 unpacks a tree, walks it
# cold and warm, removes a part, and checks the rest and the disk, in two modes and with -o uring.
#
#   tests/guest/mlfs.sh        (make guest)
#
# Needs Debian, or a kernel in MANYLOGS_GUEST_KERNEL: a directory with boot/vmlinuz-* and lib/modules.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh
seed=1

# As many files as are walked, each a little longer than the one before.
tree() {
    local number dir=$work/tree
    for number in $(seq 300); do
        mkdir -p "$dir/part$((number % 7))/dir$((number % 40))"
        random_text "$number" $((number * 13)) >"$dir/part$((number % 7))/dir$((number % 40))/$number"
    done
    ln -s part1 "$dir/link"
    tar -cf "$root/tree.tar" -C "$work" tree
    (cd "$dir" && find . -type f | sort | xargs sha256sum) >"$root/sums"
    find "$dir" | wc -l >"$root/names"
}

tools unxz=xz-utils mkfs.ext4=e2fsprogs
kernel linux-image-cloud-amd64 "${MANYLOGS_GUEST_KERNEL:-$out/kernel}" || {
    say "skipped: no package linux-image-cloud-amd64 (offline? run apt-get update)"
    exit 0
}
build
root=$work/root
root_with_modules "$root" fuse
with_libraries "$root" "$manylogs" e2fsck mkfs.ext4
cp tests/guest/mlfs/init.sh "$root/init"
chmod +x "$root/init"
tree
pack "$root"
truncate -s 256M "$work/disk.img"
boot_guest "${MANYLOGS_GUEST_SECONDS:-900}" 1024 "" "file=$work/disk.img"
verdict guest passed
say "passed: MLFS with an older kernel"
