# What there is to do with a checkout. Each target looks first whether what it needs is there (scripts/setup.sh).
# `make help` lists them.

CARGO ?= cargo
PREFIX ?= /usr/local
DESTDIR ?=
# make takes a name with a space in it for two: what it installs or removes would be something else.
$(foreach name,PREFIX LIBDIR INCLUDEDIR MANDIR DESTDIR,$(if $(word 2,$($(name))),$(error $(name) has a space in it, which make cannot take: $($(name)))))
# Those of the directories of an installation that are given: a relative one is taken from where make runs, here and in the Makefiles below.
INSTALL_TO = $(foreach name,PREFIX LIBDIR INCLUDEDIR MANDIR DESTDIR,$(if $($(name)),$(name)=$(abspath $($(name)))))
# How long `make soak` runs, and each fuzz target in `make fuzz`, and `make storm`.
SOAK ?= 10m
FUZZ ?= 60
STORM ?= 60
# Further options of the command in `make bench`, `make compare` and `make probe`.
ARGS ?=

TARGET := $(or $(CARGO_TARGET_DIR),target)
C_DOOR := $(MAKE) -C crates/ringway-c
ROCKSDB := $(MAKE) -C rocksdb
GO_DOOR := $(MAKE) -C go
BINARY := $(TARGET)/release/ringway
SETUP := ./scripts/setup.sh
# Where rustup puts cargo: a shell that was open before does not know of it.
export PATH := $(PATH):$(HOME)/.cargo/bin

.DEFAULT_GOAL := help
.PHONY: help go-bench bench compare probe build c rocksdb install install-command install-c install-rocksdb test check fmt doc soak storm loom fuzz sanitize clean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/make \1|\2/p' $(MAKEFILE_LIST) | \
		awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

bench: ## which way of doing I/O suits this machine, in about a minute; ARGS="..." for `ringway bench`
	@$(SETUP) rust cc
	$(CARGO) run --release -p ringway-cli --bin ringway -- bench $(ARGS)

# Twice: tokio's own io_uring wants a build of its own, so that the other contestants have plain tokio.
COMPARE := build --release --manifest-path compare/Cargo.toml --target-dir
PEERS := $(abspath $(TARGET))/compare
compare: ## ringway beside its peers and beside a bare ring, in about ten minutes; ARGS="..." for `compare`
	@$(SETUP) rust cc
	$(CARGO) $(COMPARE) $(PEERS)
	RUSTFLAGS="--cfg tokio_unstable" $(CARGO) $(COMPARE) $(PEERS)/tokio-io-uring --features tokio-io-uring
	$(PEERS)/release/compare --tokio-io-uring $(PEERS)/tokio-io-uring/release/compare $(ARGS)

probe: ## what this machine, kernel and user can do, and why not; ARGS="..." for `ringway probe`
	@$(SETUP) rust cc
	$(CARGO) run --release -p ringway-cli --bin ringway -- probe $(ARGS)

build: c ## the command and the C libraries, for release
	@$(SETUP) rust cc
	$(CARGO) build --release -p ringway-cli --bin ringway

c: ## the C libraries, in target/c
	$(C_DOOR)

rocksdb: ## the FileSystem for RocksDB, in target/rocksdb
	$(ROCKSDB)

# All of it, as a distribution's packages want it: DESTDIR, PREFIX, and for the C door LIBDIR, INCLUDEDIR and MANDIR.
install: install-command install-c ## the command and the C door (not RocksDB's) to PREFIX (/usr/local), below DESTDIR if that is given

# As root there may be no cargo: then what was built before is installed.
install-command: ## the command alone
	@if command -v $(CARGO) >/dev/null || ! test -x $(BINARY); then \
		$(SETUP) rust cc && $(CARGO) build --release -p ringway-cli --bin ringway; fi
	install -D -m 755 $(BINARY) $(abspath $(DESTDIR))$(abspath $(PREFIX))/bin/ringway

install-c: ## the C door alone: libraries, headers, pkg-config and CMake files, manual pages
	$(C_DOOR) install $(INSTALL_TO)

install-rocksdb: ## the FileSystem for RocksDB: its shared object and its header
	$(ROCKSDB) install $(INSTALL_TO)

# The doc tests run on each backend: they are what a reader tries first.
test: check ## every test
	@$(SETUP) mkfs
	$(CARGO) test --workspace --all-features --no-fail-fast
	RINGWAY_BACKEND=kaio $(CARGO) test --workspace --all-features --doc
	RINGWAY_BACKEND=threads $(CARGO) test --workspace --all-features --doc
	$(C_DOOR) test
	$(ROCKSDB) test
	$(GO_DOOR) test

check: ## formatting and lints, as CI wants them, and that compare/ compiles
	@$(SETUP) rust cc fmt clippy
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --all-features -- -D warnings
	$(CARGO) clippy -p ringway -p ringway-core --no-default-features -- -D warnings
	$(CARGO) clippy -p ringway-c -- -D warnings
	@! $(CARGO) tree -p ringway -p ringway-c -e normal,features | grep testing || \
		{ echo "the backends for tests are in the libraries by default" >&2; exit 1; }
	$(CARGO) check --manifest-path compare/Cargo.toml --target-dir $(PEERS)
	$(C_DOOR) headers pages
	$(GO_DOOR) check

fmt: ## formats the code
	@$(SETUP) rust fmt
	$(CARGO) fmt --all
	$(GO_DOOR) fmt

doc: ## the documentation of the library crates, in target/doc
	@$(SETUP) rust cc
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc -p ringway -p ringway-core --all-features --no-deps

go-bench: ## the Go door beside os.File, readers by the thousand, in about a minute; ARGS=-full for all of it
	$(GO_DOOR) bench ARGS="$(ARGS)"

soak: ## random operations, faults and cancels on every backend, checked; SOAK=10m
	@$(SETUP) rust cc
	$(CARGO) run --release -p ringway-torture --bin soak -- $(SOAK)

storm: ## a thousand tasks that drop their reads and writes at random moments, on every backend, checked; STORM=60 seconds
	@$(SETUP) rust cc
	RINGWAY_STORM=$(STORM) $(CARGO) test -p ringway --test trust storm -- --nocapture --test-threads=3

# (The name that loom has for this would change tokio too.)
loom: ## the engine's shard, in every order in which threads that submit, reap and drop can meet
	@$(SETUP) rust cc
	LOOM_MAX_PREEMPTIONS=5 RUSTFLAGS="--cfg ringway_loom" CARGO_PROFILE_RELEASE_LTO=off CARGO_TARGET_DIR=$(TARGET)/loom \
		$(CARGO) test -p ringway --lib --release loom_tests

# What they find new goes to the build's folder; corpus/ is only read. RUSTC_BOOTSTRAP=1 has a released compiler take what
# only an unreleased one would.
fuzz: export RUSTC_BOOTSTRAP := 1
fuzz: ## each fuzz target for FUZZ=60 seconds
	@$(SETUP) rust cc c++ fuzz
	set -e; cd fuzz; for target in $$($(CARGO) fuzz list); do \
		found=$(abspath $(TARGET))/fuzz-found/$$target; \
		mkdir -p $$found; \
		$(CARGO) fuzz run $$target $$found corpus/$$target -- -max_total_time=$(FUZZ); \
	done
	$(GO_DOOR) fuzz FUZZ=$(FUZZ)

# What is in flight when a queue goes is leaked on purpose, so leaks are not looked for. ThreadSanitizer knows only locks
# that were compiled for it: the standard library is built anew.
SANITIZED := test --target $$(rustc -vV | sed -n 's/^host: //p')
QUEUE := -p ringway-core --lib --test model
DOOR := -p ringway --lib --test trust -- --skip process --skip compile --skip examples
sanitize: export RUSTC_BOOTSTRAP := 1
sanitize: ## the queue's own tests, the model's, and the Rust door's with its storm under AddressSanitizer and ThreadSanitizer
	@$(SETUP) rust cc rust-src
	for tests in "$(QUEUE)" "$(DOOR)"; do \
		RUSTFLAGS=-Zsanitizer=address ASAN_OPTIONS=detect_leaks=0 CARGO_TARGET_DIR=$(TARGET)/address $(CARGO) $(SANITIZED) $$tests && \
		RUSTFLAGS=-Zsanitizer=thread TSAN_OPTIONS=suppressions=$(CURDIR)/scripts/tsan.supp CARGO_TARGET_DIR=$(TARGET)/thread \
			$(CARGO) -Zbuild-std $(SANITIZED) $$tests || exit 1; \
	done

clean: ## what was built
	$(CARGO) clean
