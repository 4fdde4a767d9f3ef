//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Submissions that would wait in the kernel.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
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
	f.waits.Store(&waits{first: true, journal: true})
	expect("first: ", true, true)
	f.noteDone(opRead)
	expect("ext4, noatime: ", false, true)
	f.waits.Store(&waits{first: true, journal: true, atime: true})
	expect("ext4, just written: ", true, true)
	f.accessTime.due.Store(false)
	recent()
	expect("ext4, read a moment ago: ", false, true)
	f.noteDone(opWrite)
	expect("ext4, written a moment ago: ", true, true)
	f.waits.Store(&waits{first: true})
	expect("XFS: ", false, false)
	f.waits.Store(&waits{first: true, journal: true})
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
		a := &write.f.accessTime
		a.seen.Store(a.writes.Load() + 1)
		err := write.do()
		expect(t, err == nil, "%v, %v", what, err)
		expect(t, a.seen.Load() <= a.writes.Load(), "%v: the next read does not ask", what)
	}
}

// While one reader asks for the access time after a write, another one does not take it for known.
func TestAccessTimeIsDueUntilItIsKnown(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendThreads})
	f := openIn(t, e, make([]byte, pageSize), os.O_RDWR)
	a := &f.accessTime
	a.asked.Store(int64(time.Since(started)))
	a.seen.Store(a.writes.Load() + 1)
	a.mu.Lock()
	defer a.mu.Unlock()
	expect(t, !a.isDue(f.fd), "due, although the kernel said otherwise a moment ago")
	must(t, errorOf(f.WriteAt([]byte("x"), 0)))
	expect(t, a.isDue(f.fd), "not due right after a write")
}

// slowExt4 mounts a new ext4 on a device that is as slow as the rules for image say.
func slowExt4(t *testing.T) (h *hostile, device, dir string) {
	h = mountHostile(t)
	device = loopDevice(t, filepath.Join(h.dir, "image"), 128<<20)
	run(t, "mkfs.ext4", "-q", device)
	dir = mount(t, device, "ext4", "")
	t.Cleanup(func() {
		h.set("clear")
		_ = exec.Command("umount", dir).Run()
	})
	return h, device, dir
}

// readers are the reads of cached data with a context.
func readers(f *File) map[string]func(context.Context) error {
	p := make([]byte, 2*pageSize)
	return map[string]func(ctx context.Context) error{
		"ReadAtContext": func(ctx context.Context) error {
			return errorOf(f.ReadAtContext(ctx, p, 0))
		},
		"ReadBuf": func(ctx context.Context) error {
			buffer, err := f.ReadBuf(ctx, 0, len(p))
			discardBuffer(buffer)
			return err
		},
		"ReadBatchContext": func(ctx context.Context) error {
			return f.ReadBatchContext(ctx, []Transfer{{P: p[:10]}, {P: p[10:], Off: pageSize}})
		},
	}
}

// endsInTime fails the test if a read does not return when its context ends.
func endsInTime(t *testing.T, what string, read func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := read(ctx)
	took := time.Since(start)
	expect(t, err == nil || errors.Is(err, context.DeadlineExceeded), "%s: %v", what, err)
	expect(t, took < 250*time.Millisecond, "%s returned after %v", what, took)
}

// A read of cached data changes the access time after a write, for which it waits while ext4
// commits its journal to a slow device. Its context ends in time.
func TestContextEndsWhileTheJournalIsCommitted(t *testing.T) {
	h, _, dir := slowExt4(t)
	name := filepath.Join(dir, "file")
	must(t, os.WriteFile(name, make([]byte, 1<<20), 0o600))
	syscall.Sync()
	e := newOrSkip(t, Options{})
	f := open(t, e, name, os.O_RDWR)
	other := open(t, e, name+".other", os.O_RDWR|os.O_CREATE)
	must(t, errorOf(f.ReadAtContext(t.Context(), make([]byte, 1<<20), 0)))
	h.set("image write delay 300")
	var over atomic.Bool
	var commits sync.WaitGroup
	commits.Go(func() {
		for n := int64(0); !over.Load(); n++ {
			check(t, other.Truncate(pageSize*(1+n%7)))
			check(t, other.Sync())
		}
	})
	for i := range 10 {
		for what, read := range readers(f) {
			must(t, errorOf(f.WriteAt([]byte{byte(i)}, 0)))
			time.Sleep(time.Duration(i*37%100) * time.Millisecond)
			endsInTime(t, what, read)
		}
	}
	over.Store(true)
	h.set("clear")
	returns(t, "commits", commits.Wait)
}

// The first read of a file reads the list of its extents. On a slow device, its context ends in
// time.
func TestContextEndsWhileExtentsAreRead(t *testing.T) {
	h, device, dir := slowExt4(t)
	name := filepath.Join(dir, "file")
	writer, err := os.Create(name)
	must(t, err)
	for i := range int64(20) { // More than the inode has room for.
		must(t, errorOf(writer.WriteAt(make([]byte, pageSize), 2*i*pageSize)))
	}
	must(t, errors.Join(writer.Sync(), writer.Close()))
	image := open(t, newOrSkip(t, Options{}), filepath.Join(h.dir, "image"), os.O_RDWR)
	for _, what := range []string{"ReadAtContext", "ReadBuf", "ReadBatchContext"} {
		run(t, "umount", dir)
		must(t, errors.Join(image.Sync(), image.Advise(0, 0, AdviceDontNeed)))
		must(t, syscall.Mount(device, dir, "ext4", 0, ""))
		f := open(t, newOrSkip(t, Options{}), name, os.O_RDONLY)
		h.set("image read delay 400")
		endsInTime(t, what, readers(f)[what])
		h.set("clear")
		must(t, f.Close())
		eventually(t, "the read ends", func() bool { return f.refs.count.Load() == math.MinInt64 })
	}
}

// What the page cache holds is read without a goroutine once the kernel had to wait for nothing:
// from the second read on.
func TestCachedReadsWithAContextAreTried(t *testing.T) {
	triedFile(t)
}

// triedFile opens a new file of three pages whose cached data is read without a goroutine.
func triedFile(t *testing.T) *File {
	f := openIn(t, newOrSkip(t, Options{}), bytes.Repeat([]byte("x"), 3*pageSize), os.O_RDWR)
	eventually(t, "a try", func() bool {
		must(t, errorOf(f.ReadAtContext(t.Context(), make([]byte, 3*pageSize), 0)))
		return !f.tryMayWait()
	})
	return f
}

// A batch of cached ranges ends when its context does.
func TestContextEndsBetweenCachedRanges(t *testing.T) {
	f := triedFile(t)
	batch := pages(pageSize)
	// One look before the batch, one before each range.
	err := f.ReadBatchContext(&endsAfter{t.Context(), 2}, batch)
	wantError(t, "ReadBatchContext", err, context.Canceled)
	expect(t, batch[0].N == pageSize && batch[0].Err == nil, "the first range: %v", batch[0].Err)
	expect(t, batch[1].N == 0, "the second range was read")
	wantError(t, "the second range", batch[1].Err, context.Canceled)
}

// endsAfter is a context that has ended after a number of looks.
type endsAfter struct {
	context.Context
	looks int
}

func (c *endsAfter) Err() error {
	if c.looks--; c.looks < 0 {
		return context.Canceled
	}
	return nil
}
