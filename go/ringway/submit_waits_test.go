//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Submissions that would wait in the kernel.

package ringway

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

func TestAccessTimeIsDue(t *testing.T) {
	at := func(atime, mtime, ctime int64) [3]syscall.Timespec {
		return [3]syscall.Timespec{{Sec: atime}, {Sec: mtime}, {Sec: ctime, Nsec: 1}}
	}
	const today, second = 1_000_000, int64(time.Second)
	for _, c := range []struct {
		times [3]syscall.Timespec
		want  bool
	}{
		{at(today, today-1, today-1), false},
		{at(today, today, today-1), true},
		{at(today, today-1, today), true},
		{at(today-2, today-1, today-3), true},
		{at(today-24*60*60, 1, 1), true},
		{at(today-24*60*60+1, 1, 1), false},
	} {
		got := new(accessTime).judge(c.times, second, today)
		expect(t, got == c.want, "%v: %v", c.times, got)
	}
	// A time that no read changes is not due for ever.
	var a accessTime
	due := at(1, 2, 2)
	for _, c := range []struct {
		times [3]syscall.Timespec
		now   int64
		want  bool
	}{
		{due, 1 * second, true}, {due, 10 * second, true}, {due, 11 * second, false},
		{due, 50 * second, false}, {at(1, 3, 3), 51 * second, true},
		{at(today, 3, 3), 52 * second, false}, {due, 53 * second, true},
	} {
		got := a.judge(c.times, c.now, 10)
		expect(t, got == c.want, "after %d s: %v", c.now/second, got)
	}
}

// Which submissions may wait: writes to ext4, reads there whose access time is due, and the first
// transfer of a file. AlwaysRing gives everything to the ring at once.
func TestSubmissionMayWait(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendURing})
	f := openIn(t, e, make([]byte, pageSize), os.O_RDWR|Direct)
	recent := func() { f.accessTime.asked.Store(int64(time.Since(started))) }
	expect := func(what string, reads, writes bool) {
		t.Helper()
		r, w := f.submissionMayWait(opRead), f.submissionMayWait(opWrite)
		expect(t, r == reads && w == writes, "%v, %v, %v", what, r, w)
	}
	f.lookUp()
	f.facts.waits = waits{first: true, journal: true}
	expect("first: ", true, true)
	f.noteDone(opRead)
	expect("ext4, noatime: ", false, true)
	f.facts.waits.atime = true
	expect("ext4, just written: ", true, true)
	f.accessTime.due.Store(false)
	recent()
	expect("ext4, read a moment ago: ", false, true)
	f.noteDone(opWrite)
	expect("ext4, written a moment ago: ", true, true)
	f.facts.waits = waits{first: true}
	expect("XFS: ", false, false)
	f.facts.waits = waits{first: true, journal: true}
	e.options.AlwaysRing = true
	expect("AlwaysRing: ", false, false)
}

// Direct overwrites wait while ext4 commits its journal to a slow device. No other goroutine waits
// with them, and neither does the garbage collector.
func TestJournalCommitStopsNobody(t *testing.T) {
	h := mountHostile(t)
	image := filepath.Join(h.dir, "image")
	device := loopDevice(t, image, 128<<20)
	run(t, "mkfs.ext4", "-q", device)
	dir := mount(t, device, "ext4", "")
	defer func() {
		h.set("clear")
		_ = exec.Command("umount", dir).Run()
	}()
	name := filepath.Join(dir, "file")
	must(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
	syscall.Sync()
	for _, backend := range queueBackends {
		t.Run(string(backend), func(t *testing.T) { journalCommit(t, h, backend, name) })
	}
}

func journalCommit(t *testing.T, h *hostile, backend Backend, name string) {
	e := newOrSkip(t, Options{Backend: backend})
	f := open(t, e, name, os.O_RDWR|Direct)
	h.set("image write delay 300")
	defer h.set("clear")
	var over atomic.Bool
	var others, writers sync.WaitGroup
	others.Go(func() {
		for n := int64(0); !over.Load(); n++ {
			other, err := os.OpenFile(name+".other", os.O_RDWR|os.O_CREATE, 0o600)
			if err != nil {
				t.Error(err)
				return
			}
			_ = other.Truncate(pageSize * (1 + n%7))
			_ = other.Sync()
			_ = other.Close()
		}
	})
	var worst time.Duration
	others.Go(func() {
		for !over.Load() {
			before := time.Now()
			time.Sleep(5 * time.Millisecond)
			worst = max(worst, time.Since(before))
		}
	})
	for g := range 16 {
		writers.Go(func() {
			for i := range 2 {
				n, err := f.WriteAt(page(), 2*pageSize)
				expect(t, n == pageSize && err == nil, "%v, %v", n, err)
				time.Sleep(time.Duration(10+(g*37+i*91)%300) * time.Millisecond)
			}
		})
	}
	returns(t, "writes", writers.Wait)
	over.Store(true)
	returns(t, "the other goroutines", others.Wait)
	expect(t, worst <= 1500*time.Millisecond, "another goroutine slept 5 ms, and ran after %v",
		worst)
	t.Log(fmt.Sprint("the longest sleep of 5 ms: ", worst))
}

// A write by a plain call changes the times of the file, too: the next read asks for them.
func TestReadAsksForTheAccessTimeAfterEachKindOfWrite(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, make([]byte, 4*pageSize), os.O_RDWR)
	d := openIn(t, e, make([]byte, 4*pageSize), os.O_RDWR|Direct)
	batch := func(f *File) func() error {
		return func() error { return f.WriteBatch(pages(pageSize), DataSync) }
	}
	for what, write := range map[string]struct {
		f  *File
		do func() error
	}{
		"direct":          {d, func() error { return errorOf(d.WriteAt(page(), 0)) }},
		"buffered":        {f, func() error { return errorOf(f.WriteAt([]byte("x"), 0)) }},
		"batch, direct":   {d, batch(d)},
		"batch, buffered": {f, batch(f)},
	} {
		write.f.accessTime.asked.Store(1)
		err := write.do()
		expect(t, err == nil, "%v, %v", what, err)
		expect(t, write.f.accessTime.asked.Load() == 0, "%v: the next read does not ask", what)
	}
}
