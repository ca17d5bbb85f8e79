#!/bin/sh
# Builds tests and runs their programs, as many at a time as there are cores: test.sh ARG...
#
# The arguments are those of `cargo test`, which runs one program after the other: most have a few
# tests, and would leave a core idle. What a program says is shown when it has ended. Fails if one
# does, after all have run.
set -eu
cargo=${CARGO:-cargo}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# A line for each program: the folder that it runs in, and the program.
"$cargo" test "$@" --no-run --message-format=json-render-diagnostics > "$out/messages"
pattern='s|.*"manifest_path":"\([^"]*\)/Cargo.toml".*"executable":"\([^"]*\)".*|\1 \2|p'
sed -n "/\"overflow_checks\":[a-z]*,\"test\":true/$pattern" "$out/messages" > "$out/programs"
[ -s "$out/programs" ] || { echo "cargo named no test"; exit 1; }

# Programs that run for long begin first.
long='kernel|campaign|everest|exercise|figures|day|mutated|tiny_logs|medium_planted|fs_memory'
long="$long|fs_crowd|fs_keeps|nbd"
long="/($long|all|mlfs|adopt|planted)-"
{ grep -E "$long" "$out/programs" || true; } > "$out/ordered"
{ grep -Ev "$long" "$out/programs" || true; } >> "$out/ordered"

# In a file of its own, so that its lines stay together.
cat > "$out/run" <<'RUN'
out=$1 dir=$2 program=$3
said=$(mktemp "$out/said.XXXXXX")
began=$(date +%s)
cd "$dir" && "$program" > "$said" 2>&1 || echo "$program" >> "$out/failed" || exit 255
took=$(($(date +%s) - began))
exec 9> "$out/lock"
flock 9
printf '\n     Running %s (%s s)\n' "$program" "$took"
cat "$said"
rm "$said"
RUN
export MANYLOGS_REMARKS="$out/remarks"
xargs -P "$(nproc)" -L 1 sh "$out/run" "$out" < "$out/ordered"

# Tests in documentation belong to no program.
case " $* " in
*" --test "* | *" --lib "*) ;;
*)
	"$cargo" test "$@" --doc > "$out/doc" 2>&1 || echo "tests in documentation" >> "$out/failed"
	grep -Ev '^$|^running 0 tests|Doc-tests|: ok\. 0 passed' "$out/doc" || true
	;;
esac

printf '\n%s programs with tests ran.\n' "$(wc -l < "$out/programs")"
[ ! -f "$out/remarks" ] || { echo "What deserves a look:"; sort -u "$out/remarks"; }
[ -f "$out/failed" ] || exit 0
echo "These failed:"
sort "$out/failed"
exit 1
