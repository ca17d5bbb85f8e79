# Shared by the tests with a guest: a kernel, programs and their libraries, QEMU. Sourced from the
# root of the project.
set -euo pipefail
# Absolute, as some commands run elsewhere.
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
out=$target/guest
# Where everything is built already, if somebody says so.
built=${BUILT:-$target/release}
manylogs=$built/manylogs
copy_in=$built/examples/copy_in
PATH=$PATH:/usr/sbin:/sbin
mkdir -p "$out"
work=$(mktemp -d "$out/run.XXXXXX")
trap 'rm -rf "$work"' EXIT

say() { echo "guest: $*"; }
die() {
    say "FAILED: $*"
    exit 1
}

# Installs what is missing: PROGRAM=PACKAGE...
tools() {
    local need=() pair
    for pair in qemu-system-x86_64=qemu-system-x86 mke2fs=e2fsprogs cpio=cpio "$@"; do
        command -v "${pair%%=*}" >/dev/null || need+=("${pair#*=}")
    done
    # Without libraries, which the guest would lack.
    if ! command -v busybox >/dev/null || ldd "$(command -v busybox)" >/dev/null 2>&1; then
        need+=(busybox-static)
    fi
    [ ${#need[@]} = 0 ] || sh tools/install.sh "${need[@]}"
}

# Everything that the guests and the preparation take, at once: each of it alone would have its
# libraries built anew.
build() {
    [ -z "${BUILT:-}" ] || return 0
    cargo build -q --release --locked --features manylogs-cli/ublk --lib --bins --example copy_in \
        --package manylogs-cli --package manylogs-nbdkit --package manylogs-preload \
        --package manylogs-storage
}

# A cloud kernel of Debian, unpacked and not installed: the newest that META_PACKAGE names, in
# DIRECTORY. Sets $kernel.
kernel() {
    local meta=$1 package
    kernel=$2
    compgen -G "$kernel/boot/vmlinuz-*" >/dev/null && return
    package=$(apt-cache depends "$meta" 2>/dev/null |
        sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
    [ -n "$package" ] || return 1
    say "downloading $package"
    mkdir -p "$kernel"
    (cd "$kernel" && apt-get download -q "$package" && dpkg-deb -x "$package"_*.deb .)
}

# A program and the libraries it asks for.
with_libraries() {
    local root=$1 program file
    shift
    for program; do
        file=$(command -v "$program")
        cp "$file" "$root/bin/"
        libraries_of "$root" "$file"
    done
}

libraries_of() {
    local root=$1
    ldd "$2" | grep -o '/[^ ]*' | while read -r library; do
        mkdir -p "$root$(dirname "$library")"
        cp -Ln "$library" "$root$library"
    done
}

# Begins an initramfs: busybox, and the kernel's modules NAME... beside those of the disk.
root_with_modules() {
    local root=$1 name
    shift
    mkdir -p "$root"/{bin,proc,sys,dev,modules}
    cp "$(command -v busybox)" "$root/bin/busybox"
    for name in virtio virtio_ring virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci \
        virtio_blk "$@"; do
        find "$kernel/lib/modules" -name "$name.ko*" -exec cp {} "$root/modules/" \;
    done
    find "$root/modules" -name '*.xz' -exec unxz {} +
}

pack() { (cd "$1" && find . | cpio -o -H newc --quiet | gzip -1) >"$work/initramfs"; }

# Files of many sizes in an ext4 image of so many bytes, and their checksums: what $seed makes.
file_system() {
    local files=$work/files n=0 size image_bytes=$1
    mkdir "$files"
    for size in $(seq 1 260) $(seq 1000 777 90000) $(seq 300000 500000 6000000) 10000000; do
        n=$((n + 1))
        mkdir -p "$files/dir$((n % 17))"
        random_text "$n" "$size" >"$files/dir$((n % 17))/file$n"
    done
    (cd "$files" && find . -type f | sort | xargs sha256sum) >"$work/sums"
    truncate -s "$image_bytes" "$work/plain.img"
    mke2fs -q -t ext4 -L drained -d "$files" "$work/plain.img"
    echo "$(sha256sum <"$work/plain.img" | cut -d ' ' -f 1) $((image_bytes >> 20))" >"$work/whole"
    say "ext4 of $((image_bytes >> 20)) MiB: $n files, $(du -sm "$files" | cut -f 1) MB"
}

# Repeatable bytes: as many as asked for of a generator that the seed and a number start.
random_text() {
    awk -v seed="$seed$1" -v size="$2" 'BEGIN {
        srand(seed)
        while (size > 0) {
            line = sprintf("%.12f%.12f%.12f%.12f\n", rand(), rand(), rand(), rand())
            printf "%s", substr(line, 1, size)
            size -= length(line)
        }
    }'
}

# Boots the guest from the initramfs until it turns itself off: SECONDS MEGABYTES COMMAND_LINE DISK...,
# the disks as QEMU's -drive has them. What it says is in $work/console, and of the last guest in
# $out/console. KVM is not used: a machine that runs tests is often a guest itself. More options of
# QEMU are in $guest_options. On a busy machine the kernel would find its timer too slow at boot.
guest_options=()
boot_guest() {
    local seconds=$1 megabytes=$2 line=$3 disk drives=()
    shift 3
    for disk; do drives+=(-drive "$disk,format=raw,if=virtio"); done
    timeout "$seconds" qemu-system-x86_64 -accel tcg -m "$megabytes" -smp 2 -nographic -no-reboot \
        -kernel "$kernel"/boot/vmlinuz-* -initrd "$work/initramfs" \
        -append "console=ttyS0 quiet panic=-1 no_timer_check $line" "${drives[@]}" "${guest_options[@]}" \
        </dev/null \
        >"$work/console" 2>&1 || die "the guest did not end: $(tail -n 20 "$work/console")"
}

# verdict WHO WANTED: prints what the guest has seen, and fails if it says something else than WANTED.
verdict() {
    tr -d '\r' <"$work/console" >"$out/console"
    { grep -aoE '(SEEN|VERDICT:) .*' "$out/console" || true; } | sed "s/^SEEN //; s/^/$1: /"
    grep -aq "VERDICT: $2" "$out/console" || die "$(tail -n 40 "$out/console")"
}
