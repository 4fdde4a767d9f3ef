# The commands of a checkout; `make help` lists them. How a part is built is in the Makefiles of
# crates/ringway-c, rocksdb, go, ocaml and python.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# make splits a name with a space into two, so it would install or remove something else.
$(foreach name,PREFIX LIBDIR INCLUDEDIR MANDIR DESTDIR,$(if $(word 2,$($(name))),\
	$(error $(name) has a space in it, which make does not support: $($(name)))))
# The directories of an installation that are given. A relative one starts where make runs, both
# here and in the Makefiles below.
INSTALL_TO = $(foreach name,PREFIX LIBDIR INCLUDEDIR MANDIR DESTDIR,$(if $($(name)),\
	$(name)=$(abspath $($(name)))))
# The duration of `make soak`, and of each test or target of `make storm` and `make fuzz`.
SOAK ?= 10m
FUZZ ?= 60
STORM ?= 60
# The Debian release in which `make deb` builds; this machine if it is empty.
SUITE ?=
# Further options of the command in `make bench`, `make compare`, `make probe`, `make go-bench`,
# `make ocaml-bench`, `make python-bench`, `make data-bench` and `make cluster`.
ARGS ?=
# Cargo's profile in `make cluster`: `dev` compiles in a fraction of the time.
PROFILE ?= release
# The scale of TPC-H in `make data-bench`: 1 is 400 MB on disk.
SCALE ?= 10

TARGET := $(or $(CARGO_TARGET_DIR),target)
BINARY := $(TARGET)/$(addsuffix /,$(CARGO_BUILD_TARGET))release/ringway
# A shell that was open before Rust was installed lacks rustup's directory.
export PATH := $(PATH):$(HOME)/.cargo/bin
# Where CI is set nothing is compiled again after a change, so what an incremental build keeps is of
# no use.
ifneq ($(CI),)
export CARGO_INCREMENTAL := 0
endif

# ---- What each target needs ----------------------------------------------------------------------
# The words are those of scripts/setup.sh. A target installs what is missing before it starts:
# everything at once, also what the Makefiles below need.

BUILD_NEEDS := rust cc
CHECK_NEEDS := rust rust-current cc fmt clippy c++ cc-arm64 mandoc go python3 git ocaml ocaml-test \
	services python3-venv
needs.bench := $(BUILD_NEEDS)
needs.probe := $(BUILD_NEEDS)
needs.build := $(BUILD_NEEDS)
needs.c := $(BUILD_NEEDS)
needs.rocksdb := $(BUILD_NEEDS) c++ pkg-config rocksdb
needs.ocaml := $(BUILD_NEEDS) ocaml
needs.python := $(BUILD_NEEDS) python3 python3-venv
needs.test-python := $(needs.python) clippy
needs.python-bench := $(needs.python)
needs.install := $(BUILD_NEEDS)
needs.install-command := $(BUILD_NEEDS)
needs.install-c := $(BUILD_NEEDS)
needs.install-rocksdb := $(needs.rocksdb)
needs.install-ocaml := $(needs.ocaml)
needs.check := $(CHECK_NEEDS)
needs.check-targets := rust rust-current cc cc-arm64
needs.test := $(CHECK_NEEDS) pkg-config cmake man mkfs libaio rocksdb valgrind
needs.test-long := $(needs.test)
needs.test-portable := $(BUILD_NEEDS)
needs.test-windows := $(BUILD_NEEDS) windows
needs.test-kernels := $(BUILD_NEEDS) c++ go python3 ocaml ocaml-test services guests \
	guests-arm64
needs.fmt := rust fmt go
needs.doc := $(BUILD_NEEDS)
needs.soak := $(BUILD_NEEDS)
needs.quick := $(BUILD_NEEDS) fmt clippy python3 git
needs.storm := $(BUILD_NEEDS)
needs.test-file-systems := $(BUILD_NEEDS) mkfs python3 guests
needs.loom := $(BUILD_NEEDS)
needs.fuzz := $(BUILD_NEEDS) c++ fuzz go
needs.sanitize := $(BUILD_NEEDS) rust-src
needs.compare := rust-current cc
needs.data-bench := rust-current cc
needs.test-data-engines := rust-current cc fmt clippy
needs.test-integrations := rust-current cc c++ libclang fmt clippy
needs.cluster := rust-current cc
needs.go-bench := go rust cc
needs.ocaml-bench := $(needs.ocaml)
needs.package := $(BUILD_NEEDS)
needs.semver := $(BUILD_NEEDS) semver
needs.dist := $(BUILD_NEEDS) binutils pkg-config git
needs.reproducible := $(needs.dist)
needs.deb := deb rust cc git
ifneq ($(SUITE),)
needs.deb := dpkg-source mmdebstrap rust git
endif

NEED := ./scripts/setup.sh
GOALS ?= $(or $(MAKECMDGOALS),$(patsubst needs.%,%,$(filter needs.%,$(.VARIABLES))))
NEEDED = $(sort $(foreach goal,$(GOALS),$(needs.$(goal))))

.DEFAULT_GOAL := help
.PHONY: $(patsubst needs.%,%,$(filter needs.%,$(.VARIABLES))) help print-needs clean
.PHONY: test-in-turn test-and-compile test-side-by-side check-texts compile-crates compile-bindings
.PHONY: uninstall uninstall-command uninstall-c uninstall-rocksdb uninstall-ocaml
.PHONY: check-crates check-bindings check-loom check-compare check-data-engines
.PHONY: test-crates test-native test-managed test-go

# With SETUP=list nothing is built: the one recipe lists what is missing for the given targets, or
# for all of them.
ifeq ($(SETUP),list)
.DEFAULT_GOAL := list-needs
.PHONY: list-needs
$(or $(firstword $(MAKECMDGOALS)),list-needs):
	@SETUP=list ./scripts/setup.sh $(NEEDED)
$(wordlist 2,$(words $(MAKECMDGOALS)),$(MAKECMDGOALS)): ;
else

help: ## this list; SETUP=list with any target only lists what it needs and this machine lacks
	@awk -F ':.*## ' '/^##@ / { printf "\n%s\n", substr($$0, 5) } \
		/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' \
		$(firstword $(MAKEFILE_LIST))

print-needs:
	@echo $(NEEDED)

##@ Use

bench: ## measure each way of doing I/O on this machine, in about a minute; ARGS="..."
	@$(NEED) $(needs.bench)
	$(CARGO) run --release -p ringway-cli --bin ringway -- bench $(ARGS)

probe: ## what this machine supports, why not the rest, and how to fix that; ARGS="..."
	@$(NEED) $(needs.probe)
	$(CARGO) run --release -p ringway-cli --bin ringway -- probe $(ARGS)

build: c ## the command and the C libraries, optimized
	@$(NEED) $(needs.build)
	$(CARGO) build --release -p ringway-cli --bin ringway

c: ## the C libraries, in target/c
	$(MAKE) -C crates/ringway-c

rocksdb: ## the FileSystem for RocksDB, in target/rocksdb
	@$(NEED) $(needs.rocksdb)
	$(MAKE) -C rocksdb

ocaml: ## the OCaml libraries ringway and ringway-lwt, in target/ocaml
	@$(NEED) $(needs.ocaml)
	$(MAKE) -C ocaml

python: ## the wheel of the Python package, in target/python/wheels
	@$(NEED) $(needs.python)
	$(MAKE) -C python wheel

# Packages set DESTDIR and PREFIX, and LIBDIR, INCLUDEDIR and MANDIR for the C library.
install: install-command install-c ## the command and the C library, to PREFIX (/usr/local)

# With the same variables as for the installation. What is not there is no error.
uninstall: uninstall-command uninstall-c ## removes all that was installed
uninstall: uninstall-rocksdb uninstall-ocaml

# The command that writes the pages and completions: another one when BINARY cannot run here.
GENERATOR ?= $(BINARY)
COMMAND_TO = $(abspath $(DESTDIR))$(abspath $(PREFIX))
COMMAND_MAN = $(if $(MANDIR),$(abspath $(DESTDIR))$(abspath $(MANDIR)),$(COMMAND_TO)/share/man)/man1
# Debian's zsh reads site-functions in /usr/local only.
ZSH_COMPLETIONS = $(if $(filter /usr,$(PREFIX)),vendor-completions,site-functions)
# Root may have no cargo; then what was built before is installed. Nothing of root's is left in the
# target directory, where it would be in the way of the next install.
install-command: ## the command alone, with its man pages and shell completions
	@if command -v $(CARGO) >/dev/null || ! test -x $(BINARY); then \
		./scripts/setup.sh $(needs.install-command) && \
		$(CARGO) build --release -p ringway-cli --bin ringway; fi
	install -D -m 755 $(BINARY) $(COMMAND_TO)/bin/ringway
	set -e; pages=$$(mktemp -d); trap 'rm -rf "$$pages"' EXIT; \
	$(GENERATOR) generate "$$pages"; \
	install -d $(COMMAND_MAN); install -m 644 "$$pages"/man1/* $(COMMAND_MAN); \
	install -D -m 644 "$$pages"/completions/ringway.bash \
		$(COMMAND_TO)/share/bash-completion/completions/ringway; \
	install -D -m 644 "$$pages"/completions/_ringway \
		$(COMMAND_TO)/share/zsh/$(ZSH_COMPLETIONS)/_ringway; \
	install -D -m 644 "$$pages"/completions/ringway.fish \
		$(COMMAND_TO)/share/fish/vendor_completions.d/ringway.fish

COMMAND_PAGES := ringway ringway-bench ringway-probe ringway-sum
uninstall-command:
	rm -f $(COMMAND_TO)/bin/ringway $(COMMAND_PAGES:%=$(COMMAND_MAN)/%.1) \
		$(COMMAND_TO)/share/bash-completion/completions/ringway \
		$(COMMAND_TO)/share/zsh/$(ZSH_COMPLETIONS)/_ringway \
		$(COMMAND_TO)/share/fish/vendor_completions.d/ringway.fish

uninstall-c:
	$(MAKE) -C crates/ringway-c uninstall $(INSTALL_TO)

uninstall-rocksdb:
	$(MAKE) -C rocksdb uninstall $(INSTALL_TO)

# Without ocamlfind it is unknown where the libraries are, so they cannot have been installed there.
uninstall-ocaml:
	@if command -v ocamlfind >/dev/null || test "$(PREFIX)" != /usr/local; then \
		$(MAKE) -C ocaml uninstall $(INSTALL_TO); fi

install-c: ## libringway alone: libraries, headers, pkg-config and CMake files, man pages
	$(MAKE) -C crates/ringway-c install $(INSTALL_TO)

install-rocksdb: ## the FileSystem for RocksDB: its shared object and its header
	$(MAKE) -C rocksdb install $(INSTALL_TO)

install-ocaml: ## the OCaml libraries, to where findlib looks below PREFIX
	@$(NEED) $(needs.install-ocaml)
	$(MAKE) -C ocaml install $(INSTALL_TO)

##@ Develop

# Packages are installed before anything is built. Most tests wait, for disks and for deadlines, so
# what is tested later is compiled meanwhile, and the bindings are tested side by side. The tests of
# the crates run alone: some need gibibytes of memory. What takes long to compile next to what
# it finds is left to `test-long`: DataFusion and Ballista, `compare` and its peers, the build for
# loom.
test: ## formatting, lints and the tests of every language, in half an hour: CI
	@$(NEED) $(needs.test)
	@scripts/repeat-failures.sh $(TARGET)/test.log $(MAKE) --no-print-directory test-in-turn

# What a contributor runs while working: lints, the unit tests and the everyday cases.
quick: ## formatting, lints and the quick tests of the crates, in two minutes
	@$(NEED) $(needs.quick)
	scripts/check-columns.py
	$(CARGO) fmt --all --check
	$(CARGO) clippy -p ringway-core -p ringway --all-features --all-targets -- -D warnings
	$(CARGO) test -p ringway-core --all-features --lib --test cases --test layers
	$(CARGO) test -p ringway --all-features --test basics --test hung_operations

test-in-turn:
	$(MAKE) check-texts
	$(MAKE) compile-crates
	$(MAKE) -j2 test-and-compile
	$(MAKE) -j3 test-side-by-side

test-and-compile: test-crates meanwhile-compile-bindings
test-side-by-side: test-native beside-test-managed beside-test-go

# Cargo would take part in make's job control, and compile with one processor.
ALONE := env -u MAKEFLAGS -u MFLAGS

# `cargo clippy` would check DataFusion and Ballista in addition to compiling them. So the linter is
# the compiler of the workspace's own crates, in the tests as well, which reuse what it compiled.
DATA_ENGINES := cd datafusion && RUSTC_WORKSPACE_WRAPPER=clippy-driver \
	CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ $(ALONE) $(CARGO)

INTEGRATIONS := cd integrations && RUSTC_WORKSPACE_WRAPPER=clippy-driver \
	CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ $(ALONE) $(CARGO)
FOYER := --manifest-path ringway-foyer/Cargo.toml

# So it is for the crates: what is linted is not compiled once more without it.
LINTED := RUSTC_WORKSPACE_WRAPPER=clippy-driver CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__ \
	$(ALONE) $(CARGO)
compile-crates:
	$(LINTED) test --workspace --all-features --no-run
	$(CARGO) clippy -p ringway -p ringway-core --no-default-features -- -D warnings
	$(CARGO) clippy -p ringway-c -- -D warnings

test-crates:
	$(LINTED) test --workspace --all-features --no-fail-fast

# The doc tests run on each backend: they are the programs a reader tries first.
test-long: export RINGWAY_LONG = 1
test-long: ## all of `make test` and what takes longer: more cases, systems and sanitizers
	@$(NEED) $(needs.test)
	$(MAKE) check
	$(ALONE) $(CARGO) test --workspace --all-features --no-fail-fast
	RINGWAY_BACKEND=kaio $(ALONE) $(CARGO) test --workspace --all-features --doc
	RINGWAY_BACKEND=threads $(ALONE) $(CARGO) test --workspace --all-features --doc
	$(ALONE) $(CARGO) test --manifest-path compare/Cargo.toml --target-dir $(PEERS)
	$(MAKE) test-portable loom
	$(MAKE) -C crates/ringway-c -j2 -Otarget test-long
	$(MAKE) -C rocksdb test
	$(MAKE) -C go test-long
	$(MAKE) -C ocaml test-long
	$(MAKE) -C python test
	$(MAKE) test-data-engines test-integrations

# The code for macOS and FreeBSD, in a build for Linux that uses none of Linux's own interfaces.
PORTABLE := RUSTFLAGS="--cfg ringway_portable" CARGO_TARGET_DIR=$(TARGET)/portable \
	$(ALONE) $(CARGO)
test-portable: ## the tests of the crates' code for macOS and FreeBSD, on Linux
	@$(NEED) $(needs.test-portable)
	$(PORTABLE) build -p ringway-core --all-features --examples
	$(PORTABLE) test -p ringway-core --all-features --no-fail-fast --lib --tests
	$(PORTABLE) test -p ringway --all-features --test portable

# The packages whose tests run on Windows. CARGO_TARGET_..._RUNNER is the program that Cargo runs
# the tests with.
WINDOWS_PACKAGES := ringway-core ringway
WINDOWS := CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER=$(abspath tests/windows/wine.sh) \
	$(ALONE) $(CARGO)
WINDOWS_BUILD := --target x86_64-pc-windows-gnu --all-features $(addprefix -p ,$(WINDOWS_PACKAGES))
test-windows: ## the tests that run on Windows, under Wine; links the Python package's module
	@$(NEED) $(needs.test-windows)
	$(WINDOWS) build $(WINDOWS_BUILD) --examples
	$(WINDOWS) test $(WINDOWS_BUILD) --no-fail-fast --lib --tests
	PYO3_NO_PYTHON=1 $(ALONE) $(CARGO) build --manifest-path python/Cargo.toml \
		--target x86_64-pc-windows-gnu --target-dir $(TARGET)/python/cargo
	@echo "passed on Windows ($$(wine --version)): $(WINDOWS_PACKAGES)"

# Of the other systems, the two that differ most.
compile-bindings: check-bindings
	$(ALONE) scripts/check-targets.sh aarch64-apple-darwin x86_64-pc-windows-gnu
	$(MAKE) -C rocksdb
	$(MAKE) -C go compile-tests

test-native:
	$(MAKE) -C crates/ringway-c -j2 -Otarget test
	$(MAKE) -C rocksdb test

test-managed:
	$(MAKE) -C ocaml test
	$(MAKE) test-python

test-go:
	$(MAKE) -C go test

test-python: ## the tests of the Python package
	@$(NEED) $(needs.test-python)
	$(MAKE) -C python test

test-integrations: ## OpenDAL's service, Vortex's reader and foyer's engine
	@$(NEED) $(needs.test-integrations)
	$(INTEGRATIONS) fmt --all --check
	$(INTEGRATIONS) test --workspace
	integrations/ringway-vortex/host.sh
	integrations/ringway-foyer/host.sh
	$(INTEGRATIONS) fmt --check $(FOYER)
	$(INTEGRATIONS) test $(FOYER) --target-dir target

test-data-engines: ## DataFusion's reader, Ballista's shuffle, SQL and the programs that measure
	@$(NEED) $(needs.test-data-engines)
	$(DATA_ENGINES) fmt --all --check
	$(DATA_ENGINES) test --workspace

# Makes a target next to others, `meanwhile` at a low priority. Its output is printed at its end, as
# one block.
NICE :=
meanwhile-%: NICE := nice
meanwhile-% beside-%:
	@mkdir -p $(TARGET); status=0; \
	$(NICE) $(MAKE) -j1 $* >$(TARGET)/$*.log 2>&1 || status=$$?; \
	cat $(TARGET)/$*.log; exit $$status

check: check-crates check-bindings check-targets ## formatting, lints and long lines, no tests
check: check-loom check-compare check-data-engines
	$(MAKE) -C go check-all

# The backends for tests must not be in the libraries by default: nobody may enable them unseen.
check-texts:
	@$(NEED) $(needs.check)
	scripts/check-columns.py
	$(CARGO) fmt --all --check
	@! $(CARGO) tree -p ringway -p ringway-c -e normal,features | grep testing || \
		{ echo "the feature \"testing\" is enabled by default in a library" >&2; exit 1; }
	scripts/tests/repeat_failures.sh
	scripts/tests/map.sh
	scripts/tests/versions.sh
	scripts/tests/setup.sh
	scripts/tests/columns.sh
	scripts/tests/install.sh
	tests/kernels/test_kernels.py

check-crates: check-texts
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy -p ringway -p ringway-core --no-default-features -- -D warnings
	$(CARGO) clippy -p ringway-c -- -D warnings

check-bindings:
	$(MAKE) -C crates/ringway-c headers pages
	$(MAKE) -C go check
	$(MAKE) -C ocaml check
	$(MAKE) -C python check

check-loom:
	RUSTFLAGS="--cfg ringway_loom" CARGO_TARGET_DIR=$(TARGET)/loom \
		$(ALONE) $(CARGO) check -p ringway --lib --profile test

check-compare:
	$(ALONE) $(CARGO) clippy --manifest-path compare/Cargo.toml --target-dir $(PEERS) \
		--all-targets -- -D warnings

check-targets: ## that all compiles for the other processors and systems, and with the oldest Rust
	@$(NEED) $(needs.check-targets)
	$(ALONE) scripts/check-targets.sh
	$(MAKE) -C crates/ringway-c cross CROSS_COMPILE=aarch64-linux-gnu-

check-data-engines:
	$(DATA_ENGINES) fmt --all --check
	$(DATA_ENGINES) build --workspace --all-targets

fmt: ## format the code
	@$(NEED) $(needs.fmt)
	$(CARGO) fmt --all
	$(MAKE) -C go fmt

doc: ## the documentation of the library crates, in target/doc
	@$(NEED) $(needs.doc)
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -p ringway -p ringway-core --all-features --no-deps

soak: ## random operations, faults and cancels on every backend, checked; SOAK=10m
	@$(NEED) $(needs.soak)
	$(CARGO) run --release -p ringway-torture --bin soak -- $(SOAK)

# The suites of tests/kernels/suites.py in guests with Debian's kernels. SOAK is the soak's time.
test-kernels: SOAK = 2m
test-kernels: ## the tests on Debian's kernels, in QEMU; SUITES="bookworm" TESTS="core c" WRITE=1
	@$(NEED) $(needs.test-kernels)
	tests/kernels/run.py --kernels "$(SUITES)" --tests "$(TESTS)" --soak $(SOAK) \
		$(if $(JOBS),--jobs $(JOBS)) $(if $(REFRESH),--refresh) $(if $(WRITE),--write) \
		$(if $(RECORD),--record)

storm: ## a thousand tasks that drop their reads and writes at random moments; STORM=60 seconds
	@$(NEED) $(needs.storm)
	RINGWAY_STORM=$(STORM) $(CARGO) test -p ringway --test guarantees storm -- \
		--nocapture --test-threads=3

# First what this machine's kernel has. Then what guests have: all cells, and the suites where a
# guest is needed.
test-file-systems: SURVEYED := bookworm:linux-image-amd64 trixie:linux-image-amd64 \
	sid:linux-image-amd64
test-file-systems: ## what file systems do, and the same results on each of them; as root
	@$(NEED) $(needs.test-file-systems)
	$(CARGO) test -p ringway-survey
	RINGWAY_FILE_SYSTEMS=all $(CARGO) test -p ringway-core --test other_file_systems \
		--test read_only_file_systems -- --nocapture
	RINGWAY_FILE_SYSTEMS=all $(CARGO) test -p ringway --test std_parity --test matrix \
		--test guarantees other_file_systems -- --nocapture
	$(CARGO) test -p ringway-survey --test suites -- --ignored --nocapture
	tests/kernels/run.py --kernels "$(or $(SUITES),$(SURVEYED))" --tests "survey file-systems" \
		$(if $(JOBS),--jobs $(JOBS))

# (loom's usual cfg would change tokio too.)
loom: ## the engine's shard under every order of its threads, with loom
	@$(NEED) $(needs.loom)
	LOOM_MAX_PREEMPTIONS=5 RUSTFLAGS="--cfg ringway_loom" CARGO_PROFILE_RELEASE_LTO=off \
		CARGO_TARGET_DIR=$(TARGET)/loom $(CARGO) test -p ringway --lib --release loom_tests

# New inputs go to the target directory; corpus/ is only read. RUSTC_BOOTSTRAP=1 makes a stable
# compiler accept the unstable flags that fuzzing and the sanitizers need.
fuzz: export RUSTC_BOOTSTRAP := 1
fuzz: ## each fuzz target for FUZZ=60 seconds
	@$(NEED) $(needs.fuzz)
	set -e; cd fuzz; for target in $$($(CARGO) fuzz list); do \
		found=$(abspath $(TARGET))/fuzz-found/$$target; \
		mkdir -p $$found; \
		$(CARGO) fuzz run $$target $$found corpus/$$target -- -max_total_time=$(FUZZ); \
	done
	$(MAKE) -C go fuzz FUZZ=$(FUZZ)

# Operations in flight when a queue is dropped are leaked on purpose, so leak detection is off.
# ThreadSanitizer knows only locks that were compiled for it, so the standard library is rebuilt.
SANITIZED := test --target $$(rustc -vV | sed -n 's/^host: //p')
QUEUE := -p ringway-core --lib --test model
ENGINE := -p ringway --lib --test guarantees -- --skip process --skip compile --skip examples
sanitize: export RUSTC_BOOTSTRAP := 1
sanitize: ## the queue's and the engine's tests under AddressSanitizer and ThreadSanitizer
	@$(NEED) $(needs.sanitize)
	for tests in "$(QUEUE)" "$(ENGINE)"; do \
		RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 \
			CARGO_TARGET_DIR=$(TARGET)/address $(CARGO) $(SANITIZED) $$tests && \
		RUSTFLAGS=-Zsanitizer=thread \
			TSAN_OPTIONS=suppressions=$(CURDIR)/scripts/tsan.supp \
			CARGO_TARGET_DIR=$(TARGET)/thread \
			$(CARGO) -Zbuild-std $(SANITIZED) $$tests || exit 1; \
	done

##@ Measure

# Built twice: a build with tokio's own io_uring would change plain tokio in the other rows.
COMPARE := build --release --manifest-path compare/Cargo.toml --target-dir
PEERS := $(abspath $(TARGET))/compare
RUN_COMPARE := $(PEERS)/release/compare --tokio-io-uring $(PEERS)/tokio-io-uring/release/compare
define build-compare
$(CARGO) $(COMPARE) $(PEERS)
RUSTFLAGS="--cfg tokio_unstable" $(CARGO) $(COMPARE) $(PEERS)/tokio-io-uring \
	--features tokio-io-uring
endef
compare: ## ringway next to its peers and to a bare ring, in about ten minutes; ARGS="..."
	@$(NEED) $(needs.compare)
	$(build-compare)
	$(RUN_COMPARE) $(ARGS)

# The data stays in target/data for the next run. With --workspace, dependencies are compiled with
# the features that all programs of datafusion/ need, and thus only once.
DATA := $(abspath $(TARGET))/data
DATA_BENCH := datafusion/target/release/data-bench
TPCH := $(DATA)/tpch-$(SCALE)
data-bench: ## Parquet ranges, DataFusion, small files, in some hours; SCALE=10 ARGS="..."
	@$(NEED) $(needs.data-bench)
	$(build-compare)
	$(CARGO) build --release --workspace --bin data-bench \
		--manifest-path datafusion/Cargo.toml --target-dir datafusion/target
	@mkdir -p $(DATA)
	test -e $(DATA)/ranges || $(DATA_BENCH) ranges --out $(DATA)/ranges
	test -e $(TPCH) || $(DATA_BENCH) generate tpch --scale $(SCALE) --out $(TPCH)
	test -e $(DATA)/wide || $(DATA_BENCH) generate wide --out $(DATA)/wide
	test -e $(DATA)/small || $(DATA_BENCH) generate small --out $(DATA)/small
	$(RUN_COMPARE) ranges --ranges $(DATA)/ranges --file $(DATA)/ranges.data \
		--json $(DATA)/a.json
	$(DATA_BENCH) run b --tpch $(TPCH) --wide $(DATA)/wide --json $(DATA)/b.json $(ARGS)
	$(DATA_BENCH) run c --small $(DATA)/small --json $(DATA)/c.json $(ARGS)

cluster: SCALE = 1
cluster: CLUSTER := datafusion/target/$(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
cluster: ## TPC-H on a scheduler and two executors, with either store; SCALE=1 ARGS="..."
	@$(NEED) $(needs.cluster)
	$(CARGO) build --profile $(PROFILE) --workspace --bins \
		--manifest-path datafusion/Cargo.toml --target-dir datafusion/target
	@mkdir -p $(DATA)
	test -e $(DATA)/tpch-$(SCALE) || \
		$(CLUSTER)/data-bench generate tpch --scale $(SCALE) --out $(DATA)/tpch-$(SCALE)
	$(CLUSTER)/ringway-ballista-cluster --tables $(DATA)/tpch-$(SCALE) \
		--queries datafusion/queries/tpch --work-dir $(DATA) $(ARGS)

go-bench: ## Go: next to os.File with many readers, in about a minute; ARGS=-full for all of it
	@$(NEED) $(needs.go-bench)
	$(MAKE) -C go bench ARGS="$(ARGS)" REPORT="$(REPORT)"

python-bench: ## Python: next to aiofiles, aiofile, anyio and threads; ARGS="cached --seconds 1"
	@$(NEED) $(needs.python-bench)
	$(MAKE) -C python bench ARGS="$(ARGS)" REPORT="$(REPORT)"

ocaml-bench: ## OCaml: next to Unix, Lwt_unix, Lwt_io and Eio; ARGS="..."
	@$(NEED) $(needs.ocaml-bench)
	$(MAKE) -C ocaml bench ARGS="$(ARGS)" REPORT="$(REPORT)"

##@ Release

package: ## the crates as they would be published, in target/package
	@$(NEED) $(needs.package)
	scripts/package.sh

semver: ## whether a crate breaks the API of its last release, with cargo-semver-checks
	scripts/semver.sh

dist: ## reproducible tarballs with prebuilt libringway and the command, in target/dist
	@$(NEED) $(needs.dist)
	scripts/dist.sh

reproducible: ## whether `make dist` gives the same bytes in two directories, in some minutes
	@$(NEED) $(needs.reproducible)
	scripts/tests/dist.sh

deb: ## the Debian packages, in target/deb; SUITE=bookworm builds them in a clean Debian, as root
	@$(NEED) $(needs.deb)
	scripts/deb.sh $(SUITE)

clean: ## remove what was built
	$(CARGO) clean
endif
