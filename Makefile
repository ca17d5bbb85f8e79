# Manylogs: build, try, test.
#
#   make run    replay the sample trace on a modelled drive and compare the policies
#   make test   every test
#   make check  formatter, unit tests and house rules: for the time between two changes
#   make test-campaigns   crash states of every system, as many as fit some minutes (two with each
#               change)
#   make build, then make install [PREFIX=...] [DESTDIR=...]: program, plugin of nbdkit, library
#               for LD_PRELOAD, man pages, completions, systemd unit, udev rule; make uninstall takes
#               them away
#   make wheel  the Python package for CPython from 3.10 on, in target/wheels; pip install . does it, too
#   make test-python  tests of the Python package, in a venv of its own in target/
#   make fleet-scale, fleet-gates   how busy many workers are in virtual time; what a fleet costs beside
#               its replays (after test-python; some minutes each)
#   make fleet-long   memory of a worker that replays a trace of REQUESTS=100000000
#   make package-gates   instructions of the package over those of the program, false discoveries
#               of fleets that gain nothing, and disks that a screen clears wrongly (the public traces)
#   make fleet-deaths, fleet-poison   fleets to which things happen, by SEEDS=1-100, in network
#               namespaces (root); a thousand traces of which fifty are bad
#   make lint   formatter, clippy and documentation, warnings as errors
#   make figures   puts what the program prints into README.md and docs/results/*.md (make test compares)
#   make reproduce  the figures of the papers at the full scale, beside what the papers have (some minutes):
#               docs/results/PAPER.md, figures.html and claims.json in out/reproduce/PAPER (PAPERS=... for some)
#   make reproduce-short  the same at the smallest scale, with every change: docs/results/PAPER-smallest.md
#               must be what comes out (WRITE=1 writes it)
#   make bench  instructions per replayed request, against benches/budget.txt
#   make cost   memory and instructions that the mapping table takes (some minutes)
#   make planted   bugs planted in the volume and between it and its clients: tests must notice each
#   make campaign  a million crash states of volumes, and as many of volumes on arrays (STATES=N for
#               another number)
#   make adopt-campaign 40,000 crash states on the way to MLFS and back
#   make round-trips    100 round trips of a disk between MLFS and the kernel; needs root
#   make ext4-campaign  500,000 crash states of the file system and a million damaged images
#               (STATES=N, MUTANTS=N; E2FSCK_EVERY=1 has e2fsck judge every one, too)
#   make differential   system calls on MLFS beside the kernel's ext4: 20 seeds of 20,000 (SEED=N,
#               SEEDS=N, CALLS=N; ONLY=N,N,... for some calls of a seed, SHRINK=1 to find them; root)
#   make medium    10,000 power cuts of the disk below the served program (STATES=N; root)
#   make coverage  which lines of the volume the campaign reaches (cargo-tarpaulin, some minutes)
#   make programs  fio, fsx, stress-ng, PostgreSQL and NBD clients use volumes whose servers are
#               killed; pjdfstest, fsx, stress-ng, thousands of processes and a directory of a
#               million names use MLFS (root; some hours, FAST=1 for some minutes)
#   make soak   served volumes under a changing load for an hour, in which nothing may grow
#               (MINUTES=N for another time)
#   make short-programs   fio and fsx on ext4, as with every change
#   make everest-campaign   servers of a base volume and of its stores are killed, and links between
#               them are harmed, in network namespaces: ROUNDS=1000, SEED=N (root)
#   make interfere  syncs beside streams in virtual time, against what is promised (FAST=1: a part)
#   make keeping  what the logs keep of files that need durability and no place, in virtual time with
#               logs of 1 GiB, against what is promised (some minutes)
#   make drive-gate  what advice says of drives that are known by their data sheets, held against 100
#               drives that they may be (DRAWN=N of each of ten sheets; half an hour), and reads with
#               a queue beside what the catalogue's sheets publish
#   make scheduler  a database beside a backup, syncs beside streams that pause, and with
#               TRACES=FOLDER public traces, against what is promised (SEEDS=N,N,...)
#   make effect  small durable writes, PostgreSQL and MongoDB's engine beside a stream, on emulated
#               drives with the volume and without, and below the kernel's schedulers; tables, and
#               plots in docs/plots (root; two hours, FAST=1 for some minutes). Goes on where it was
#               interrupted: remove out/effect.jsonl to begin anew
#   make applications  PostgreSQL and MongoDB's engine on emulated drives: on the kernel's ext4, on
#               MLFS, and with logs that need no place (--durable), each beside a stream and alone;
#               and PostgreSQL and MariaDB on MLFS whose servers are killed (root; about half an hour,
#               FAST=1 for some minutes)
#   make mlfs-bench  speed of MLFS beside the kernel's ext4 and beside what FUSE itself costs (root)
#   make guest  guest kernels read a drained disk without this software, use volumes through ublk and
#               the kernel's NBD client whose servers are killed, and MLFS with an older kernel (Debian;
#               QEMU, kernels)
#   make guest-crash  ext4 on served volumes over dm-log-writes, replayed to each flush, and over
#               dm-flakey, in guests
#   make guest-link  the kernel's block layer in a guest with an AHCI disk beside that of the model
#   make guest-cache  drives' write caches that servers set and put back, kills included, in a guest
#   make guest-identify  disks of a guest that claim models of the catalogue are recognised
#   make guest-arrays  volumes on md's RAID-0, 10, 5, 6 and LVM's stripes in a guest: which members
#               a record touches, kills, power cuts, a member removed after one
#   make guest-stores   a base volume borrows the disks of guests, whose power is cut: ROUNDS=50, SEED=N
#               (root, Debian)
#   make guest-systemd  a guest's systemd and udev find, serve, mount and stop volumes (root, Debian)

CARGO ?= cargo
SAMPLE := traces/pgbench-beside-reader.trace.zst
TRACE ?= $(if $(wildcard $(SAMPLE)),$(SAMPLE),synthetic)
ARGS ?= --rate auto --utilisation 0.5 --fit
TARGET := $(or $(CARGO_TARGET_DIR),target)

.PHONY: wheel test-python fleet-scale fleet-deaths fleet-poison fleet-gates fleet-long package-gates reproduce reproduce-short mlfs-bench interfere drive-gate scheduler figures run test check test-campaigns build install uninstall lint bench cost planted campaign ext4-campaign adopt-campaign round-trips differential medium coverage programs \
	soak short-programs everest-campaign effect guest guest-crash guest-link guest-cache guest-identify guest-systemd guest-arrays guest-stores applications keeping tools nbd-tools test-tools ublk-tools

STATES ?= 1000000

run: tools
	$(CARGO) build --release --locked --package manylogs-cli
	mkdir -p out
	$(TARGET)/release/manylogs replay $(TRACE) $(ARGS) --report out/report.html --json out/report.json
	@echo "Open out/report.html in a browser."

# One set of packages and features for all tests, so that nothing is built twice: deliberate bugs
# can be planted in every layer, and none is unless a test asks for it.
PLANTED := manylogs-schedule manylogs-logstore manylogs-engine manylogs-everest manylogs-gecko manylogs manylogs-torture manylogs-storage \
	manylogs-ext4 manylogs-near manylogs-serve manylogs-ublk manylogs-cli
comma := ,
empty :=
PLANTS := $(subst $(empty) $(empty),$(comma),$(strip $(PLANTED:%=%/plant)))
TESTED := --workspace --locked --no-fail-fast --features $(PLANTS),manylogs-cli/tls
# What cannot run on this machine is noted, and told at the end: see tools/skipped.sh.
SKIPPED := $(abspath $(TARGET))/skipped.txt
PLUGIN := $(abspath $(TARGET))/debug/examples/libplugin.so
PRELOAD := $(abspath $(TARGET))/debug/examples/libpreload.so
TEST := MANYLOGS_SKIPPED=$(SKIPPED) MANYLOGS_NBDKIT_PLUGIN=$(PLUGIN) MANYLOGS_PRELOAD=$(PRELOAD) \
	CARGO="$(CARGO)" tools/test.sh $(TESTED)
test: tools nbd-tools test-tools
	@rm -f $(SKIPPED)
	$(TEST); status=$$?; tools/skipped.sh $(SKIPPED) || exit; exit $$status

check: tools
	$(CARGO) fmt --all --check
	@rm -f $(SKIPPED)
	$(TEST) --lib --bins --test tidy; status=$$?; tools/skipped.sh $(SKIPPED) || exit; exit $$status

# About 40 s of processor time for each system. The targets of single campaigns run many more.
TORTURE = $(TARGET)/release/manylogs torture
# The arrays on which volumes and file systems are crashed.
ARRAYS := raid0:4 raid10:4 raid5:4 raid6:8
test-campaigns: tools
	$(CARGO) build --release --locked --package manylogs-cli
	$(TORTURE) --faults --states 60000
	$(TORTURE) --trouble --states 10000
	$(TORTURE) --system everest --states 20000
	$(TORTURE) --system gecko --states 60000
	$(TORTURE) --system ext4 --states 10000
	$(TORTURE) --system lazy --states 4000
	$(TORTURE) --system ext4 --mutate 10000 --e2fsck-every 200
	$(TORTURE) --system mlfs --states 8000
	$(TORTURE) --system mlfs --trouble --states 4000
	for array in $(ARRAYS); do $(TORTURE) --array $$array --states 2000 || exit; done
	$(TORTURE) --system mlfs --array raid0:4 --states 400
	$(TORTURE) --system adopt --states 4000

# What install takes, where to, and under what root for packages.
BUILT ?= $(TARGET)/release
PREFIX ?= /usr/local
DESTDIR ?=
NBDKIT_PLUGIN_DIR ?= $(PREFIX)/lib/nbdkit/plugins
PRELOAD_DIR ?= $(PREFIX)/lib/manylogs
SYSTEMD_UNIT_DIR ?= /etc/systemd/system
UDEV_RULES_DIR ?= /etc/udev/rules.d
UDEV_RULES := 60-manylogs.rules 61-manylogs-fs.rules
UNITS := manylogs@.service manylogs-chain@.service
MAN_DIR ?= $(PREFIX)/share/man/man1
BASH_DIR ?= $(PREFIX)/share/bash-completion/completions
ZSH_DIR ?= $(PREFIX)/share/zsh/site-functions
FISH_DIR ?= $(PREFIX)/share/fish/vendor_completions.d
# mount(8) and umount(8) look for helpers here.
HELPER_DIR ?= /sbin
HELPERS := mount.fuse.manylogs umount.fuse.manylogs

build: tools ublk-tools
	$(CARGO) build --release --locked --package manylogs-cli --package manylogs-nbdkit \
		--package manylogs-preload --features manylogs-cli/ublk,manylogs-cli/tls

# Without cargo, which root may not have: make build first.
install:
	@test -x $(BUILT)/manylogs || { echo "nothing is built: run make build first"; exit 1; }
	@test -f $(BUILT)/libmanylogs_nbdkit.so || \
		{ echo "the plugin of nbdkit is not built, nothing was installed: run make build first"; exit 1; }
	@test -f $(BUILT)/libmanylogs_preload.so || \
		{ echo "the library to preload is not built, nothing was installed: run make build first"; exit 1; }
	install -D $(BUILT)/manylogs $(DESTDIR)$(PREFIX)/bin/manylogs
	install -D -m 644 $(BUILT)/libmanylogs_nbdkit.so \
		$(DESTDIR)$(NBDKIT_PLUGIN_DIR)/nbdkit-manylogs-plugin.so
	install -D -m 644 $(BUILT)/libmanylogs_preload.so \
		$(DESTDIR)$(PRELOAD_DIR)/libmanylogs_preload.so
	install -d $(foreach dir,$(BASH_DIR) $(ZSH_DIR) $(FISH_DIR) $(SYSTEMD_UNIT_DIR) $(UDEV_RULES_DIR),$(DESTDIR)$(dir))
	$(BUILT)/manylogs man $(DESTDIR)$(MAN_DIR)
	$(BUILT)/manylogs completions bash > $(DESTDIR)$(BASH_DIR)/manylogs
	$(BUILT)/manylogs completions zsh > $(DESTDIR)$(ZSH_DIR)/_manylogs
	$(BUILT)/manylogs completions fish > $(DESTDIR)$(FISH_DIR)/manylogs.fish
	for unit in $(UNITS); do \
		sed 's|/usr/bin/manylogs|$(PREFIX)/bin/manylogs|' packaging/systemd/$$unit \
			> $(DESTDIR)$(SYSTEMD_UNIT_DIR)/$$unit || exit 1; \
	done
	for rules in $(UDEV_RULES); do \
		sed 's|/usr/bin/manylogs|$(PREFIX)/bin/manylogs|' packaging/udev/$$rules \
			> $(DESTDIR)$(UDEV_RULES_DIR)/$$rules || exit 1; \
	done
	install -d $(DESTDIR)$(HELPER_DIR)
	for helper in $(HELPERS); do \
		sed 's|/usr/bin/manylogs|$(PREFIX)/bin/manylogs|' packaging/mount/$$helper \
			> $(DESTDIR)$(HELPER_DIR)/$$helper && chmod 755 $(DESTDIR)$(HELPER_DIR)/$$helper || exit 1; \
	done

uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/manylogs
	rm -f $(DESTDIR)$(NBDKIT_PLUGIN_DIR)/nbdkit-manylogs-plugin.so
	rm -f $(DESTDIR)$(PRELOAD_DIR)/libmanylogs_preload.so
	rm -f $(DESTDIR)$(MAN_DIR)/manylogs.1 $(DESTDIR)$(MAN_DIR)/manylogs-*.1
	rm -f $(DESTDIR)$(BASH_DIR)/manylogs $(DESTDIR)$(ZSH_DIR)/_manylogs
	rm -f $(DESTDIR)$(FISH_DIR)/manylogs.fish
	rm -f $(foreach unit,$(UNITS),$(DESTDIR)$(SYSTEMD_UNIT_DIR)/$(unit))
	rm -f $(foreach rules,$(UDEV_RULES),$(DESTDIR)$(UDEV_RULES_DIR)/$(rules))
	rm -f $(foreach helper,$(HELPERS),$(DESTDIR)$(HELPER_DIR)/$(helper))

# In a venv of its own: Python packages need not be installed.
VENV := $(TARGET)/venv
wheel: tools
	@command -v python3 >/dev/null || sh tools/install.sh python3 python3-venv
	[ -x $(VENV)/bin/maturin ] || { python3 -m venv $(VENV) && $(VENV)/bin/pip install -q 'maturin>=1.9,<2'; }
	$(VENV)/bin/maturin build --release --locked --out $(TARGET)/wheels

# In the profile of make run, which has built most of it; tests compare the package with its program.
test-python: tools
	@rm -f $(SKIPPED)
	$(CARGO) build --release --locked --package manylogs-cli
	MANYLOGS_SKIPPED=$(SKIPPED) tools/test-python.sh $(TARGET) release; status=$$?; \
		tools/skipped.sh $(SKIPPED) || exit; exit $$status

# Campaigns of fleets with the package that test-python has built; each says what it does.
FLEET = cd crates/experiments/python/tests && MANYLOGS=$(abspath $(TARGET))/release/manylogs $(abspath $(VENV))/bin/python
fleet-scale:
	$(FLEET) fleet_scale.py
fleet-deaths:
	$(FLEET) fleet_deaths.py --seeds $(or $(SEEDS),1-100)
fleet-poison:
	$(FLEET) fleet_poison.py
fleet-gates:
	$(FLEET) fleet_gates.py memory
	$(FLEET) fleet_gates.py overhead
fleet-long:
	$(FLEET) fleet_gates.py long --requests $(or $(REQUESTS),100000000)
package-gates:
	@command -v valgrind >/dev/null || sh tools/install.sh valgrind
	$(FLEET) package_gates.py instructions
	$(FLEET) package_gates.py false
	$(FLEET) package_gates.py screen

figures: tools
	FIGURES=write $(CARGO) test --locked --package manylogs-cli --test figures

# Disks of file systems are made by mkfs.ext4.
REPRODUCE_TOOLS := e2fsprogs
PAPERS ?= manylogs lazy everest gecko
reproduce: tools
	@dpkg -s $(REPRODUCE_TOOLS) >/dev/null 2>&1 || sh tools/install.sh $(REPRODUCE_TOOLS)
	$(CARGO) build --release --locked --package manylogs-cli
	for paper in $(PAPERS); do \
		$(TARGET)/release/manylogs reproduce $$paper --out out/reproduce/$$paper \
			--markdown docs/results/$$paper.md || exit; \
	done

reproduce-short: tools
	@dpkg -s $(REPRODUCE_TOOLS) >/dev/null 2>&1 || sh tools/install.sh $(REPRODUCE_TOOLS)
	$(CARGO) build --release --locked --package manylogs-cli
	mkdir -p out
	@for paper in $(PAPERS); do \
		$(TARGET)/release/manylogs reproduce $$paper --scale 1 --out out/reproduce-short/$$paper \
			--markdown $(if $(WRITE),docs/results,out)/$$paper-smallest.md || exit; \
		$(if $(WRITE),true,cmp out/$$paper-smallest.md docs/results/$$paper-smallest.md) || \
			{ echo "figures changed: make reproduce-short WRITE=1 writes docs/results/$$paper-smallest.md anew"; \
			exit 1; }; \
	done

interfere: tools
	$(CARGO) build --release --locked --package manylogs-cli
	benches/interfere.sh $(TARGET)/release/manylogs

DRAWN ?= 10
drive-gate: tools
	@command -v python3 >/dev/null || sh tools/install.sh python3
	$(CARGO) build --release --locked --package manylogs-cli
	benches/catalogue-queue.py $(TARGET)/release/manylogs
	benches/drive-gate.py $(TARGET)/release/manylogs --drawn $(DRAWN)

scheduler: tools
	@command -v python3 >/dev/null || sh tools/install.sh python3
	$(CARGO) build --release --locked --package manylogs-cli
	benches/scheduler.py --manylogs $(TARGET)/release/manylogs $(if $(SEEDS),--seeds $(SEEDS)) database pauses \
		$(if $(TRACES),--traces $(TRACES) traces)

# What make test also runs: only the tests that plant bugs.
# NOTICED=write notes anew which history shows each bug of the campaigns: these are tried first.
planted: tools
	$(CARGO) test $(TESTED) --lib --bins --tests -- planted noticed loop_device --nocapture
	$(CARGO) test $(TESTED) --test panics

mlfs-bench: tools
	$(CARGO) build --release --locked --package manylogs-cli
	$(CARGO) build --release --locked --package manylogs-fuse --example memory
	benches/mlfs.py --manylogs $(TARGET)/release/manylogs --memory $(TARGET)/release/examples/memory
	benches/small_files.py --manylogs $(TARGET)/release/manylogs $(if $(FAST),--rounds 3 --dirs 60,)
	benches/ring.py --manylogs $(TARGET)/release/manylogs --memory $(TARGET)/release/examples/memory

campaign: tools
	$(CARGO) build --release --locked --package manylogs-cli
	$(TARGET)/release/manylogs torture --faults --states $(STATES)
	for array in $(ARRAYS); do \
		$(TORTURE) --array $$array --states $$(($(STATES) / 5)) || exit; \
	done
	for array in $(filter-out raid6:8,$(ARRAYS)); do \
		$(TORTURE) --array $$array --trouble --states $$(($(STATES) / 20)) || exit; \
	done

ext4-campaign: STATES := 500000
ext4-campaign: MUTANTS := 1000000
ext4-campaign: E2FSCK_EVERY := 20
ext4-campaign: tools
	$(CARGO) build --release --locked --package manylogs-cli
	$(TARGET)/release/manylogs torture --system ext4 --states $(STATES) --e2fsck-every $(E2FSCK_EVERY)
	$(TARGET)/release/manylogs torture --system ext4 --mutate $(MUTANTS) --e2fsck-every 200

adopt-campaign: STATES := 40000
adopt-campaign: E2FSCK_EVERY := 20
adopt-campaign: tools
	$(CARGO) build --release --locked --package manylogs-cli
	$(TARGET)/release/manylogs torture --system adopt --states $(STATES) --e2fsck-every $(E2FSCK_EVERY)

round-trips: ROUNDS := 100
round-trips: tools
	ROUND_TRIPS=$(ROUNDS) $(CARGO) test --locked --package manylogs-cli --test adopt -- round_trips --nocapture

differential: tools
	DIFFERENTIAL_SEED=$(or $(SEED),1) DIFFERENTIAL_SEEDS=$(or $(SEEDS),20) DIFFERENTIAL_CALLS=$(or $(CALLS),20000) \
		DIFFERENTIAL_ONLY=$(ONLY) DIFFERENTIAL_SHRINK=$(SHRINK) \
		$(CARGO) test $(TESTED) --test differential -- --nocapture

medium: STATES := 10000
medium: tools
	MEDIUM_STATES=$(STATES) $(CARGO) test --locked --package manylogs-cli --test medium -- --nocapture

coverage: tools
	@command -v cargo-tarpaulin >/dev/null || $(CARGO) install cargo-tarpaulin --version 0.37.5 --locked
	$(CARGO) tarpaulin --engine llvm --skip-clean --timeout 3600 --target-dir $(TARGET)/coverage \
		--package manylogs-torture --test all --out Stdout \
		--include-files 'crates/systems/manylogs/src/*' 'crates/systems/manylogs/src/**/*' 'crates/logs/logstore/src/*' \
		--exclude-files 'crates/systems/manylogs/src/settings/policy.rs' \
		-- campaign::

# CHECKS names some of the checks of tests/programs/run.sh; FAST=1 and more: see there.
PROGRAMS := fio xfsprogs e2fsprogs iproute2 stress-ng postgresql nbdkit libnbd-bin qemu-utils
programs: tools
	@dpkg -s $(PROGRAMS) >/dev/null 2>&1 || sh tools/install.sh $(PROGRAMS)
	@PATH="$$PATH:$${CARGO_HOME:-$$HOME/.cargo}/bin" command -v fsx >/dev/null || \
		$(CARGO) install fsx --version 0.3.2 --locked
	@PATH="$$PATH:$${CARGO_HOME:-$$HOME/.cargo}/bin" command -v pjdfstest >/dev/null || \
		$(CARGO) install pjdfstest --version 0.2.2 --locked
	$(CARGO) build --release --locked --package manylogs-cli --package manylogs-nbdkit
	tests/programs/run.sh $(CHECKS)

MINUTES ?= 60
soak: tools
	@command -v python3 >/dev/null || sh tools/install.sh python3
	$(CARGO) build --release --locked --package manylogs-cli
	tests/programs/soak.py $(MINUTES)

# Without network it goes on with the tools that are there, and says what it skips.
short-programs: tools
	@dpkg -s fio e2fsprogs iproute2 >/dev/null 2>&1 || \
		sh tools/install.sh fio e2fsprogs iproute2 || true
	@PATH="$$PATH:$${CARGO_HOME:-$$HOME/.cargo}/bin" command -v fsx >/dev/null || \
		$(CARGO) install fsx --version 0.3.2 --locked || true
	$(CARGO) build --release --locked --package manylogs-cli
	FAST=1 tests/programs/run.sh short everest

# Both sides of a connection prove keys, as on machines of their own.
EVEREST_TOOLS := fio e2fsprogs iproute2 util-linux python3
everest-campaign: ROUNDS := 1000
everest-campaign: tools
	@dpkg -s $(EVEREST_TOOLS) >/dev/null 2>&1 || sh tools/install.sh $(EVEREST_TOOLS)
	$(CARGO) build --release --locked --package manylogs-cli --features manylogs-cli/tls
	ROUNDS=$(ROUNDS) tests/programs/run.sh everest

applications: tools
	@dpkg -s $(EFFECT_TOOLS) mariadb-server >/dev/null 2>&1 || \
		sh tools/install.sh $(EFFECT_TOOLS) mariadb-server
	$(CARGO) build --release --locked --package manylogs-cli
	mkdir -p out
	tests/programs/run.sh pg-mlfs mariadb-mlfs
	SYSTEMS='ext4-ordered mlfs-manylogs mlfs-durable' DEVICES=raw CHECKPOINT=every:60s \
		OUT=out/applications.jsonl benches/effect/run.sh databases

# PARTS names some of the parts of benches/effect/run.sh; FAST=1, DRIVES and more: see there. What is
# in out/effect.jsonl is not run again.
EFFECT_TOOLS := e2fsprogs xfsprogs postgresql gcc libc6-dev libwiredtiger-dev python3
effect: tools
	@dpkg -s $(EFFECT_TOOLS) >/dev/null 2>&1 || sh tools/install.sh $(EFFECT_TOOLS)
	$(CARGO) build --release --locked --package manylogs-cli
	mkdir -p out
	benches/effect/run.sh $(PARTS)
	benches/effect/report.py out/effect.jsonl $(if $(FAST),out,docs/plots) | tee out/effect.md

guest: tools nbd-tools ublk-tools
	tests/guest/run.sh

guest-crash: tools ublk-tools
	tests/guest/crash.sh

guest-link: tools
	tests/guest/link.sh

guest-cache: tools ublk-tools
	tests/guest/cache.sh

guest-identify: tools
	tests/guest/identify.sh

guest-arrays: tools ublk-tools
	tests/guest/arrays.sh

guest-stores: ROUNDS := 50
guest-stores: tools
	tests/guest/stores.sh $(ROUNDS) $(SEED)

guest-systemd: tools ublk-tools
	tests/guest/systemd.sh

# Crates that the programs do not name have no features there.
INNER := manylogs-schedule manylogs-engine manylogs-everest manylogs-gecko manylogs-near
OF_PROGRAMS := $(patsubst %,%/plant,$(filter-out $(INNER),$(PLANTED)))
OF_PROGRAMS := $(subst $(empty) $(empty),$(comma),$(strip $(OF_PROGRAMS)))
lint: tools ublk-tools
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked --features $(PLANTS),manylogs-cli/ublk,manylogs-cli/tls \
		-- -D warnings
	$(CARGO) clippy --package manylogs-ublk --package manylogs-cli --features $(OF_PROGRAMS) \
		--all-targets --locked -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked

bench: tools
	@command -v valgrind >/dev/null || sh tools/install.sh valgrind
	$(CARGO) bench --locked --package manylogs-lab --bench instructions

keeping: tools
	$(CARGO) build --release --locked --package manylogs-cli
	$(TARGET)/release/manylogs fs keeping

cost: tools
	@command -v valgrind >/dev/null || sh tools/install.sh valgrind
	$(CARGO) bench --locked --package manylogs --bench cost

# The clients of others that the NBD export is tested with.
NBD_TOOLS := nbdkit libnbd-bin python3-libnbd qemu-utils
nbd-tools:
	@dpkg -s $(NBD_TOOLS) >/dev/null 2>&1 || sh tools/install.sh $(NBD_TOOLS)

# Programs without which a few tests are skipped.
TEST_TOOLS := e2fsprogs python3 attr acl xfsprogs btrfs-progs f2fs-tools dosfstools fdisk
test-tools:
	@dpkg -s $(TEST_TOOLS) >/dev/null 2>&1 || sh tools/install.sh $(TEST_TOOLS) || true

# The bindings of ublk's library are made with libclang, of any version.
ublk-tools:
	@ldconfig -p | grep -q 'libclang\(-[0-9.]*\)\?\.so' || \
		ls /usr/lib/llvm-*/lib/libclang.so* /usr/lib/llvm-*/lib/libclang-[0-9]*.so* 2>/dev/null | \
		grep -q . || sh tools/install.sh libclang-dev

# A C compiler, for the zstd library and for linking.
tools:
	@command -v cargo >/dev/null || { echo "Rust is needed: https://rustup.rs"; exit 1; }
	@command -v cc >/dev/null || sh tools/install.sh gcc libc6-dev
