#!/bin/sh
# Builds the Python package's wheel, installs it in a venv of its own, and runs its tests there:
# test-python.sh TARGET PROFILE
#
# TARGET is cargo's folder; PROFILE is cargo's, and must have built the program, with which the
# tests compare. Where Python or its packages are missing, that is noted in MANYLOGS_SKIPPED.
set -eu
target=$1 profile=$2
cd "$(dirname "$0")/.."
venv=$target/venv
folder=$profile
[ "$profile" != dev ] || folder=debug

skip() {
	echo "skipped: $1"
	[ -z "${MANYLOGS_SKIPPED:-}" ] || printf 'python\ttest-python\t%s\n' "$1" >> "$MANYLOGS_SKIPPED"
	exit 0
}
command -v python3 > /dev/null || skip "Python is not here"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	skip "Python is not here from 3.10 on"
[ -x "$venv/bin/python" ] || python3 -m venv "$venv" || skip "Python is not here with venv"
needed='import distributed, mypy, numpy, pandas, polars, pyarrow, tqdm'
fetch() {
	"$venv/bin/pip" install -q "$@" || skip "Python packages cannot be fetched"
}
[ -x "$venv/bin/maturin" ] || fetch 'maturin>=1.9,<2'
# The packages that only tests need arrive while the wheel is built.
"$venv/bin/python" -c "$needed" 2> /dev/null || \
	"$venv/bin/pip" install -q mypy pandas polars pyarrow tqdm \
		'dask>=2026.3,<2027' 'distributed>=2026.3,<2027' &
fetched=$!

PATH=$(cd "$venv/bin" && pwd):$PATH
wheels=$target/wheels
rm -rf "$wheels"
maturin build --profile "$profile" --locked --out "$wheels"
wait "$fetched" || skip "Python packages cannot be fetched"
pip install -q --no-deps --force-reinstall "$wheels"/manylogs-*-cp310-abi3-*.whl
MANYLOGS=${MANYLOGS:-$(cd "$target/$folder" && pwd)/manylogs}
export MANYLOGS
[ -x "$MANYLOGS" ] || { echo "$MANYLOGS is not built"; exit 1; }
cd crates/experiments/python/tests
# As many modules at a time as there are cores, the longest first; each one's output in one piece.
said=$(mktemp -d)
trap 'rm -rf "$said"' EXIT
modules=$(ls -S test_*.py)
printf '%s\n' $modules | xargs -P "$(nproc)" -I MODULE sh -c \
	'python -m unittest --verbose "$1" > "$2/$1" 2>&1 || touch "$2/failed"' - MODULE "$said"
for module in $modules; do
	cat "$said/$module"
done
[ ! -f "$said/failed" ]
