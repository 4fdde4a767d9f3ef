//go:build linux

// What refusals say, for limits of every kind. Nothing is read from this machine but once.

package refusal

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/core"
)

// One errno has several causes, each with its own fix.
func TestFixDependsOnTheCause(t *testing.T) {
	for _, c := range []struct {
		feature string
		errno   syscall.Errno
		limits  limits
		meaning string
		fix     string
	}{
		{Uring, syscall.EPERM, limits{seccomp: "2", uringDisabled: "0"}, "seccomp filter",
			"io_uring_setup"},
		{Uring, syscall.EPERM, limits{uringDisabled: "2"}, "kernel.io_uring_disabled is 2",
			"sysctl"},
		{Uring, syscall.EPERM, limits{uringDisabled: "1", uringGroup: "7"}, "group 7", "group 7"},
		{Uring, syscall.EPERM, limits{uringDisabled: "1", uringGroup: "-1"}, "CAP_SYS_ADMIN",
			"sysctl"},
		{Uring, syscall.EPERM, limits{uringDisabled: "1", capabilities: capSysAdmin},
			"security module", "SELinux"},
		{KAIO, syscall.EPERM, limits{seccomp: "2", uringDisabled: "2"}, "seccomp filter",
			"io_setup"},
		{Uring, syscall.ENOSYS, limits{}, "without io_uring", "CONFIG_IO_URING"},
		{KAIO, syscall.ENOSYS, limits{}, "without Linux AIO", "CONFIG_AIO"},
		{Uring, syscall.ENOMEM, limits{memlock: 64 << 10}, "64 KiB", "ulimit -l"},
		{Uring, syscall.ENOMEM, limits{memlock: 64 << 10, capabilities: capIPCLock},
			"does not apply", "memory.max"},
		{Uring, syscall.ENOMEM,
			limits{memlock: 8 << 20, capabilities: capIPCLock, userNamespace: true},
			"8 MiB for all processes of this user together (CAP_IPC_LOCK does not lift it",
			"ulimit -l"},
		{Uring, syscall.ENOMEM, limits{memlock: 64 << 10}, "a closed ring", "smaller rings"},
		{FixedBuffers, syscall.ENOMEM, limits{memlock: 1 << 20}, "huge page", "fewer buffers"},
		{KAIO, syscall.EAGAIN, limits{aioMaxNr: "65536", aioNr: "65000"}, "65000 are in use",
			"fs.aio-max-nr"},
		{"DEFER_TASKRUN", syscall.EINVAL, limits{}, "does not support DEFER_TASKRUN", "6.1"},
		{Uring, syscall.EMFILE, limits{nofile: 1024}, "1024", "ulimit -n"},
		{DirectIO, syscall.EINVAL, limits{}, "does not support direct I/O", "ext4"},
	} {
		meaning, fix := explain(c.feature, c.errno, c.limits)
		if !strings.Contains(meaning, c.meaning) || !strings.Contains(fix, c.fix) {
			t.Errorf("%s, %v, %+v: %q, %q", c.feature, c.errno, c.limits, meaning, fix)
		}
	}
}

func TestBytesText(t *testing.T) {
	for bytes, want := range map[uint64]string{0: "0 bytes", 1023: "1023 bytes", 1 << 10: "1 KiB",
		1<<10 + 1: "1025 bytes", 1536 << 10: "1536 KiB", 1 << 20: "1 MiB", 8 << 20: "8 MiB",
		1 << 30: "1 GiB", 1<<30 + 1<<20: "1025 MiB"} {
		if got := bytesText(bytes); got != want {
			t.Errorf("%d: %q, not %q", bytes, got, want)
		}
	}
}

func TestErrorNamesFeatureErrnoAndFix(t *testing.T) {
	r := New(Uring, syscall.ENOSYS)
	for _, part := range []string{"io_uring refused", "ENOSYS", "function not implemented",
		"fix: "} {
		if !strings.Contains(r.Error(), part) {
			t.Errorf("%q lacks %q", r.Error(), part)
		}
	}
	if !errors.Is(r, syscall.ENOSYS) {
		t.Error("errors.Is does not find the errno")
	}
}

func TestTableIsThatOfTheCore(t *testing.T) {
	if core.File(t, "ringway-core/src/refusal/refusals.txt") != table {
		t.Error("refusals.txt differs from that in crates/ringway-core/src/refusal")
	}
}

// all returns the features and the errnos of the table, without the names of texts.
func all() (features, errnos []string) {
	for line := range strings.Lines(table) {
		columns := strings.Split(line, "|")
		switch {
		case len(columns) == 4:
			features = append(features, strings.TrimSpace(columns[1]))
		case len(columns) > 1:
			for word := range strings.SplitSeq(columns[0], ",") {
				if word = strings.TrimSpace(word); strings.HasPrefix(word, "E") {
					errnos = append(errnos, word)
				}
			}
		}
	}
	return features, errnos
}

// Every name in braces stands for something, and every feature of this package has a line.
func TestTableIsUnderstood(t *testing.T) {
	features, errnos := all()
	for _, feature := range []string{Uring, KAIO, Threads, IOWQWorkers, DirectIO, FixedBuffers} {
		if !slices.Contains(features, feature) {
			t.Errorf("%q is in no line", feature)
		}
	}
	if len(features) < 20 || len(errnos) < 50 {
		t.Fatal("the table is not understood: ", features, errnos)
	}
	var named []string
	for errno := range syscall.Errno(134) {
		named = append(named, errnoName(errno))
	}
	for _, errno := range errnos {
		if !slices.Contains(named, errno) {
			t.Errorf("%s is not known by name", errno)
		}
	}
	unexpected, _ := textOf("", Uring, limits{})
	for _, l := range []limits{{}, {seccomp: "2", memlockUnlimited: true},
		{uringDisabled: "1", uringGroup: "7", aioMaxNr: "65536"},
		{uringDisabled: "2", aioMaxNr: "65536", aioNr: "1", capabilities: capIPCLock}} {
		for _, feature := range features {
			for _, errno := range errnos {
				meaning, fix := textOf(errno, feature, l)
				whole := meaning + "; fix: " + fix
				if meaning == "" || strings.ContainsAny(whole, "{}") ||
					strings.Contains(whole, "  ") || (fix == "") != (meaning == unexpected) ||
					fix != "" && strings.Contains(whole, unexpected) {
					t.Errorf("%s, %s, %+v: %q, %q", feature, errno, l, meaning, fix)
				}
			}
		}
	}
}

func TestConditionsOfTheTableAreKnown(t *testing.T) {
	// With these limits every condition holds.
	l := limits{seccomp: "2", uringGroup: "1", aioMaxNr: "1", aioNr: "1", userNamespace: true,
		memlock: 1, capabilities: capIPCLock | capSysAdmin}
	for line := range strings.Lines(table) {
		columns := strings.Split(line, "|")
		if strings.HasPrefix(line, "#") || len(columns) != 3 {
			continue
		}
		for word := range strings.SplitSeq(columns[2], ",") {
			word = strings.TrimPrefix(strings.TrimSpace(word), "!")
			_, l.uringDisabled, _ = strings.Cut(word, "=")
			if !l.holds(word, Uring) {
				t.Errorf("%q in %q", word, line)
			}
		}
	}
}
