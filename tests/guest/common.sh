# Shared by the tests with a guest: a kernel, programs and their libraries, QEMU. Sourced from the
# root of the project.
set -euo pipefail
target=${CARGO_TARGET_DIR:-target}
out=$target/guest
manylogs=$target/release/manylogs
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
    cargo build -q --release --locked --features manylogs-cli/ublk --lib --bins --example copy_in \
        --package manylogs-cli --package manylogs-nbdkit --package manylogs-storage
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

# Boots the guest from the initramfs, with the disk as /dev/vda: SECONDS MEGABYTES DRIVE_OPTIONS. What
# it says is in $work/console. KVM is not used: a machine that runs tests is often a guest itself.
boot_guest() {
    timeout "$1" qemu-system-x86_64 -accel tcg -m "$2" -smp 2 -nographic -no-reboot \
        -kernel "$kernel"/boot/vmlinuz-* -initrd "$work/initramfs" \
        -append 'console=ttyS0 quiet panic=-1' \
        -drive "file=$work/disk.img,format=raw,if=virtio$3" </dev/null \
        >"$work/console" 2>&1 || die "the guest did not end: $(tail -n 20 "$work/console")"
}
