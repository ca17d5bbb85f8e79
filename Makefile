# Manylogs: build, try, test.
#
#   make run    replay the sample trace on a modelled drive and compare the policies
#   make test   every test
#   make lint   formatter, clippy and documentation, warnings as errors
#   make bench  instructions per replayed request, against benches/budget.txt
#   make cost   memory and instructions that the mapping table takes (some minutes)
#   make planted   bugs planted in the engine, each of which the crash histories must notice
#   make campaign  a million crash states (STATES=N for another number)
#   make guest  a guest kernel reads a drained disk without this software (Debian; QEMU, a kernel)

CARGO ?= cargo
SAMPLE := traces/pgbench-beside-reader.trace.zst
TRACE ?= $(if $(wildcard $(SAMPLE)),$(SAMPLE),synthetic)
ARGS ?= --rate auto --utilisation 0.5 --fit
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: run test lint bench cost planted campaign guest tools

STATES ?= 1000000

run: tools
	$(CARGO) build --release --locked --package manylogs-cli
	mkdir -p out
	$(TARGET)/release/manylogs replay $(TRACE) $(ARGS) \
		--policy nologging,single-log,mlb-32,mlb-256 --report out/report.html --json out/report.json
	@echo "Open out/report.html in a browser."

test: tools
	$(CARGO) test --workspace --locked --no-fail-fast
	$(MAKE) planted

planted: tools
	$(CARGO) test --locked --package manylogs-torture --features plant --test planted -- --nocapture

campaign: tools
	$(CARGO) build --release --locked --package manylogs-cli
	$(TARGET)/release/manylogs torture --faults --states $(STATES)

guest: tools
	tests/guest/run.sh

lint: tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

bench: tools
	@command -v valgrind >/dev/null || sh tools/install.sh valgrind
	$(CARGO) bench --locked --package manylogs-lab --bench instructions

cost: tools
	@command -v valgrind >/dev/null || sh tools/install.sh valgrind
	$(CARGO) bench --locked --package manylogs --bench cost

# A C compiler, for the zstd library and for linking.
tools:
	@command -v cargo >/dev/null || { echo "Rust is needed: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || sh tools/install.sh gcc libc6-dev
