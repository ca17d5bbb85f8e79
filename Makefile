# Manylogs: build, try, test.
#
#   make run    replay the sample trace on a modelled drive and compare the policies
#   make test   every test
#   make lint   formatter, clippy and documentation, warnings as errors
#   make bench  instructions per replayed request, against benches/budget.txt
#   make cost   memory and instructions that the mapping table takes (some minutes)
#   make planted   bugs planted in the engine, each of which the crash histories must notice
#   make campaign  a million crash states (STATES=N for another number)
#   make coverage  which lines of the engine the campaign reaches (cargo-tarpaulin, some minutes)
#   make guest  a guest kernel reads a drained disk without this software (Debian; QEMU, a kernel)

CARGO ?= cargo
SAMPLE := traces/pgbench-beside-reader.trace.zst
TRACE ?= $(if $(wildcard $(SAMPLE)),$(SAMPLE),synthetic)
ARGS ?= --rate auto --utilisation 0.5 --fit
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: run test lint bench cost planted campaign coverage guest tools nbd-tools

STATES ?= 1000000

run: tools
	$(CARGO) build --release --locked --package manylogs-cli
	mkdir -p out
	$(TARGET)/release/manylogs replay $(TRACE) $(ARGS) \
		--policy nologging,single-log,mlb-32,mlb-256 --report out/report.html --json out/report.json
	@echo "Open out/report.html in a browser."

test: tools nbd-tools
	$(CARGO) test --workspace --locked --no-fail-fast
	$(MAKE) planted

planted: tools
	$(CARGO) test --locked --package manylogs-torture --features plant --test planted -- --nocapture

campaign: tools
	$(CARGO) build --release --locked --package manylogs-cli
	$(TARGET)/release/manylogs torture --faults --states $(STATES)

coverage: tools
	@command -v cargo-tarpaulin >/dev/null || $(CARGO) install cargo-tarpaulin --version 0.37.5 --locked
	$(CARGO) tarpaulin --engine llvm --skip-clean --timeout 3600 --target-dir $(TARGET)/coverage \
		--package manylogs-torture --test campaign --out Stdout \
		--include-files 'crates/manylogs/src/*' 'crates/manylogs/src/**/*' 'crates/logstore/src/*' \
		--exclude-files 'crates/manylogs/src/policy.rs' 'crates/manylogs/src/fuzz/*'

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

# The clients of others that the NBD export is tested with.
NBD_TOOLS := nbdkit libnbd-bin python3-libnbd qemu-utils
nbd-tools:
	@dpkg -s $(NBD_TOOLS) >/dev/null 2>&1 || sh tools/install.sh $(NBD_TOOLS)

# A C compiler, for the zstd library and for linking.
tools:
	@command -v cargo >/dev/null || { echo "Rust is needed: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || sh tools/install.sh gcc libc6-dev
