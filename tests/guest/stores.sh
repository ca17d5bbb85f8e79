#!/bin/bash
# Machines lend their disks to a base volume of this one, and their power is cut: three guests, each
# behind a link that is harmed, too; tests/programs/everest_kills.py says what happens in a round.
#
#   tests/guest/stores.sh [ROUNDS [SEED]]        (make guest-stores)
#
# Needs root and Debian, or a kernel with modules in MANYLOGS_GUEST_KERNEL: a directory with
# boot/vmlinuz-* and lib/modules.
cd "$(dirname "$0")/../.."
. tests/guest/common.sh
rounds=${1:-10} seed=${2:-1}

tools fio=fio ip=iproute2 python3=python3 strip=binutils
kernel linux-image-cloud-amd64 "${MANYLOGS_GUEST_KERNEL:-$out/kernel-cloud}" ||
    die "no package linux-image-cloud-amd64: run apt-get update"
[ -n "${BUILT:-}" ] ||
    cargo build -q --release --locked --package manylogs-cli --features manylogs-cli/tls
root=$work/root
root_with_modules "$root" failover net_failover virtio_net
with_libraries "$root" "$manylogs"
strip "$root/bin/manylogs"
cp tests/guest/stores/init.sh "$root/init"
chmod +x "$root/init"
pack "$root"
mkdir "$work/everest"
GUEST_KERNEL=$(echo "$kernel"/boot/vmlinuz-*) GUEST_INITRAMFS=$work/initramfs \
    python3 tests/programs/everest_kills.py "$manylogs" "$work/everest" "$rounds" "$seed" \
    >"$work/said" || {
    cp "$work/everest/log" "$out/everest.log"
    tail -n 5 "$work"/everest/console* || true
    die "see $out/everest.log"
}
say "$(cat "$work/said")"
say "passed"
