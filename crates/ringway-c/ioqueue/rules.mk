# Builds, tests and installs libioqueue and libioqueuemt. Included by ../Makefile.
#
# The static libraries contain libringway.a, so that the link line of a program for the original,
# -lioqueue with or without -laio -lrt, needs nothing more (except -lpthread -ldl before glibc
# 2.34). The shared libraries need libringway.so.0, which they find in their own directory. A
# distribution's packages set RPATH to nothing, because the loader searches that directory anyway.
RPATH ?= -Wl,-rpath,'$$ORIGIN'

IOQUEUE := libioqueue libioqueuemt
IOQUEUE_STATIC := $(IOQUEUE:%=$(BUILD)/%.a)
IOQUEUE_SHARED := $(IOQUEUE:%=$(BUILD)/%.so)
# Compiler flags of each library.
FORM_libioqueue :=
FORM_libioqueuemt := -DIOQUEUE_THREADS

all: $(IOQUEUE_STATIC) $(IOQUEUE_SHARED)

$(IOQUEUE:%=$(BUILD)/%.o): $(BUILD)/%.o: ioqueue/ioqueue.c $(HEADERS) | $(BUILD)
	$(CC) $(C) $(FORM_$*) -c $< -o $@
$(IOQUEUE:%=$(BUILD)/%.pic.o): $(BUILD)/%.pic.o: ioqueue/ioqueue.c $(HEADERS) | $(BUILD)
	$(CC) $(C) $(FORM_$*) -fPIC -c $< -o $@

$(IOQUEUE_STATIC): $(BUILD)/%.a: $(BUILD)/%.o $(LIB)
	cp $(LIB) $@
	$(AR) rsD $@ $<
$(IOQUEUE_SHARED): $(BUILD)/%.so: $(BUILD)/%.pic.o $(BUILD)/libringway.so
	$(CC) $(CFLAGS) $(LDFLAGS) -shared -Wl,-z,defs -Wl,-soname,$*.so.$(SOVERSION) $(RPATH) \
		$< $(BUILD)/libringway.so -o $@.$(VERSION)
	ln -sf $*.so.$(VERSION) $@.$(SOVERSION)
	ln -sf $*.so.$(VERSION) $@

# ---- Tests --------------------------------------------------------------------------------------
# tests/ioqueue_NAME.c runs with each library; with libioqueuemt its target is
# tests/ioqueuemt_NAME.c.

IOQUEUE_TESTS := $(patsubst tests/ioqueue_%,%,$(wildcard tests/ioqueue_*.c))
IOQUEUE_HOWS := plain sanitized valgrind
IOQUEUE_MT := $(foreach how,$(IOQUEUE_HOWS),$(IOQUEUE_TESTS:%=$(how)/tests/ioqueuemt_%))
IOQUEUE_NEEDS := $(wildcard tests/*.h) $(HEADERS)
.PHONY: $(IOQUEUE_MT) ioqueue-exports ioqueue-links

test: $(IOQUEUE_MT) ioqueue-exports ioqueue-links

# Plain tests use the static libraries. Sanitized tests compile ioqueue.c with the sanitizers, too.
$(IOQUEUE_TESTS:%=$(BUILD)/tests/ioqueue_%): $(BUILD)/tests/ioqueue_%: \
	tests/ioqueue_% $(BUILD)/libioqueue.a $(IOQUEUE_NEEDS)
	@mkdir -p $(@D)
	$(CC) $(C) $< $(BUILD)/libioqueue.a -o $@
$(IOQUEUE_TESTS:%=$(BUILD)/ioqueuemt/tests/ioqueue_%): $(BUILD)/ioqueuemt/tests/ioqueue_%: \
	tests/ioqueue_% $(BUILD)/libioqueuemt.a $(IOQUEUE_NEEDS)
	@mkdir -p $(@D)
	$(CC) $(C) -DIOQUEUE_THREADS $< $(BUILD)/libioqueuemt.a -o $@
$(IOQUEUE_TESTS:%=$(BUILD)/sanitized/ioqueue_%): $(BUILD)/sanitized/ioqueue_%: \
	tests/ioqueue_% ioqueue/ioqueue.c $(LIB) $(IOQUEUE_NEEDS)
	@mkdir -p $(@D)
	$(CC) $(C) $(SANITIZE) $< ioqueue/ioqueue.c $(LIB) $(PRIVATE) -o $@
$(IOQUEUE_TESTS:%=$(BUILD)/ioqueuemt/sanitized/ioqueue_%): $(BUILD)/ioqueuemt/sanitized/ioqueue_%: \
	tests/ioqueue_% ioqueue/ioqueue.c $(LIB) $(IOQUEUE_NEEDS)
	@mkdir -p $(@D)
	$(CC) $(C) -DIOQUEUE_THREADS $(SANITIZE) $< ioqueue/ioqueue.c $(LIB) $(PRIVATE) -o $@

$(IOQUEUE_TESTS:%=plain/tests/ioqueuemt_%): plain/tests/ioqueuemt_%: \
	$(BUILD)/ioqueuemt/tests/ioqueue_%
	@scripts/run-test.sh plain tests/ioqueue_$* $<
$(IOQUEUE_TESTS:%=sanitized/tests/ioqueuemt_%): sanitized/tests/ioqueuemt_%: \
	$(BUILD)/ioqueuemt/sanitized/ioqueue_%
	@scripts/run-test.sh sanitized tests/ioqueue_$* $<
$(IOQUEUE_TESTS:%=valgrind/tests/ioqueuemt_%): valgrind/tests/ioqueuemt_%: \
	$(BUILD)/ioqueuemt/tests/ioqueue_%
	@$(NEED) valgrind
	@scripts/run-test.sh valgrind tests/ioqueue_$* $<

ioqueue-exports: $(IOQUEUE_SHARED)
	@ioqueue/check-exports.sh $(SOVERSION) $^

ioqueue-links: $(IOQUEUE_STATIC) $(IOQUEUE_SHARED) ## run programs for the original ioqueue
	@$(NEED) cc c++
	@ioqueue/check-links.sh $(BUILD) $(BUILD)/scratch/ioqueue-links

# ---- Benchmark ----------------------------------------------------------------------------------

IOQUEUE_BENCH := $(addprefix $(BUILD)/,ioqueue_bench ioqueuemt_bench libaio_loop)
.PHONY: ioqueue-bench

ioqueue-bench: $(IOQUEUE_BENCH) ## compare ioqueue.h with libaio; ARGS="--backend uring" and others
	@$(NEED) python3
	ioqueue/compare-libaio.py $(BUILD) $(ARGS)

$(BUILD)/ioqueue_bench $(BUILD)/ioqueuemt_bench: \
	$(BUILD)/%_bench: ioqueue/bench.c ioqueue/bench.h $(BUILD)/lib%.a include/ioqueue.h
	$(CC) $(C) $< $(BUILD)/lib$*.a -o $@
$(BUILD)/libaio_loop: ioqueue/libaio_loop.c ioqueue/bench.h | $(BUILD)
	@$(NEED) libaio
	$(CC) $(C) $< -laio -o $@

# ---- Installation -------------------------------------------------------------------------------

install: install-ioqueue
uninstall: uninstall-ioqueue
.PHONY: install-ioqueue uninstall-ioqueue

install-ioqueue: all
	install -d $(DESTDIR)$(LIBDIR)
	install -m 644 $(IOQUEUE_STATIC) $(IOQUEUE_SHARED:%=%.$(VERSION)) $(DESTDIR)$(LIBDIR)
	for name in $(IOQUEUE); do \
		ln -sf $$name.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$$name.so.$(SOVERSION) && \
		ln -sf $$name.so.$(VERSION) $(DESTDIR)$(LIBDIR)/$$name.so || exit 1; done

uninstall-ioqueue:
	for name in $(IOQUEUE); do \
		rm -f $(addprefix $(DESTDIR)$(LIBDIR)/$$name, \
			.a .so .so.$(SOVERSION) .so.$(VERSION)) || exit 1; done
