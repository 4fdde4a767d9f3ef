//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// What depends on the device: its queue, submissions that would wait in the kernel, devices that
// fail and file systems that are frozen. Tests on loop devices need root.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ringway-io/ringway/go/internal/refusal"
	"github.com/ringway-io/ringway/go/internal/skip"
)

// run runs a command, and skips the test if it fails.
func run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Skipf("skipped: %v: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// loopDevice returns a loop device over a file, which exists until the test ends.
func loopDevice(t *testing.T, file string, size int64) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root has loop devices")
	}
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, size))
	device := run(t, "losetup", "--find", "--show", file)
	t.Cleanup(func() { _ = exec.Command("losetup", "--detach", device).Run() })
	return device
}

// mount mounts a file system until the test ends, and returns its directory.
func mount(t *testing.T, device, kind, options string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root mounts")
	}
	dir := t.TempDir()
	if err := syscall.Mount(device, dir, kind, 0, options); err != nil {
		t.Skip("skipped: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return dir
}

// failingDevice returns a loop device of 64 MiB over 4 MiB of memory.
func failingDevice(t *testing.T) string {
	t.Helper()
	return loopDevice(t, filepath.Join(mount(t, "none", "tmpfs", "size=4m"), "image"), 64<<20)
}

// Writers block while a file system is frozen. Contexts end in time, files and engines close, and
// nothing is damaged after the thaw.
func TestFrozenFileSystem(t *testing.T) {
	device := loopDevice(t, filepath.Join(t.TempDir(), "image"), 64<<20)
	run(t, "mkfs.ext4", "-q", device)
	dir := mount(t, device, "ext4", "")
	name := filepath.Join(dir, "file")
	each(t, func(t *testing.T, other *Engine, direct int) {
		e := newOrSkip(t, Options{Backend: other.Backend(), closeWait: 200 * time.Millisecond})
		must(t, os.WriteFile(name, bytes.Repeat([]byte("x"), 2<<20), 0o600))
		f := open(t, e, name, os.O_RDWR|direct)
		thaw := freeze(t, dir)
		defer thaw()
		for what, do := range contextMethods(f, alignedSlice(2*pageSize, pageSize)) {
			err := endsLater(t, what, do, errEnough)
			if err != nil || strings.HasPrefix(what, "Write") {
				wantError(t, what, err, errEnough)
			}
		}
		begin(t, "File.Close", f.Close)(nil)
		returns(t, "Engine.Close", func() { _ = e.Close() })
		thaw()
		n := len(content(t, f))
		expect(t, n == 2<<20, "%v", n)
	})
}

// freeze makes a file system block all writes until thaw.
func freeze(t *testing.T, dir string) (thaw func()) {
	t.Helper()
	const fifreeze, fithaw = 0xc0045877, 0xc0045878
	d := get(os.Open(dir))(t)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), fifreeze, 0); errno != 0 {
		d.Close()
		t.Skip("skipped: this file system cannot be frozen: ", errno)
	}
	over := false
	return func() {
		if !over {
			_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, d.Fd(), fithaw, 0)
			d.Close()
			over = true
		}
	}
}

// A disk loses what was written to the page cache. The kernel reports that once, and everyone who
// was waiting for a sync receives it: 16 concurrent syncs, and the sync after a SyncRange that has
// met the error.
func TestLostDataIsReportedToEveryone(t *testing.T) {
	f := open(t, newOrSkip(t, Options{}), failingDevice(t), os.O_RDWR)
	lose := func() { // The image has no room for so much.
		t.Helper()
		must(t, errorOf(f.WriteAt(bytes.Repeat([]byte("lost"), 4<<20), 0)))
	}
	// A goroutine that starts late may come after the report, and then has no error.
	most := 0
	for round := 0; round < 10 && most < 8; round++ {
		lose()
		var failed atomic.Int32
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 16 {
			all.Go(func() {
				<-start
				if errors.Is(f.Datasync(), syscall.EIO) {
					failed.Add(1)
				}
			})
		}
		close(start)
		returns(t, "a sync", all.Wait)
		expect(t, failed.Load() != 0, "the error was lost")
		most = max(most, int(failed.Load()))
	}
	expect(t, most >= 8, "at most %d of 16 syncs failed", most)

	lose()
	err := f.SyncRange(0, 0, RangeWaitBefore|RangeWrite|RangeWaitAfter)
	expect(t, err != nil, "SyncRange has no error")
	wantError(t, "the sync after SyncRange", f.Datasync(), syscall.EIO)
}

// An open with Direct where there is no direct I/O says so, and what to do about it.
func TestDirectOpenRefused(t *testing.T) {
	_, err := OpenFile("/proc/self/status", os.O_RDONLY|Direct, 0)
	var refused *Refusal
	var path *fs.PathError
	expect(t, errors.As(err, &refused) && refused.Feature == refusal.DirectIO &&
		refused.Errno == syscall.EINVAL && refused.Fix != "" && errors.As(err, &path) &&
		path.Op == "open" && errors.Is(err, syscall.EINVAL), "%v", err)
	_, err = OpenFile("/proc/self/none", os.O_RDONLY|Direct, 0)
	expect(t, errors.Is(err, os.ErrNotExist) && !errors.As(err, &refused), "%v", err)
}

// manyReads starts reads of a file, and returns a function that waits for them.
func manyReads(f *File, count int, check func(int, error)) (wait func()) {
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			_, err := f.ReadAt(page(), int64(i)*pageSize)
			check(i, err)
		})
	}
	return all.Wait
}

// openOnSmallQueue opens a file of 64 pages, as on a disk with a queue of which a single shard uses
// six places.
func openOnSmallQueue(t *testing.T, e *Engine) *File {
	f := openIn(t, e, make([]byte, 64*pageSize), os.O_RDWR|Direct)
	f.lookUp()
	f.facts.queue = &blockQueue{requests: 8}
	return f
}

// No more transfers are in a device than its queue holds, and none is forgotten.
func TestDeviceQueueIsNotExceeded(t *testing.T) {
	for _, backend := range queueBackends {
		e, s := scriptedEngine(t, Options{Backend: backend})
		f, other := openOnSmallQueue(t, e), openOnSmallQueue(t, e)
		if !f.facts.allows(e.backend) {
			t.Skip("skipped: the temporary folder is on a file system without queues")
		}
		f.warm.Store(true)
		other.warm.Store(true)
		f.waits.Store(new(waits))
		other.waits.Store(new(waits))
		s.onResult(func(r *request) bool { return r.file == f })
		wait := manyReads(f, 40, func(i int, err error) {
			expect(t, err == nil, "%v, %v", i, err)
		})
		eventually(t, "all arrive", func() bool {
			stats := e.Stats()
			return stats.InFlight == 6 && stats.Waiting == 34
		})
		ctx, cancel := context.WithCancel(t.Context())
		left := begin(t, "a canceled read", func() error {
			return errorOf(f.ReadAtContext(ctx, page(), 0))
		})
		eventually(t, "another arrives", func() bool { return e.Stats().Waiting == 35 })
		cancel()
		left(context.Canceled)
		begin(t, "a read of another device", func() error {
			return errorOf(other.ReadAt(page(), 0))
		})(nil)
		var most int
		done := make(chan struct{})
		go func() { wait(); close(done) }()
		for running := true; running; {
			select {
			case <-done:
				running = false
			case <-time.After(100 * time.Microsecond):
				most = max(most, e.Stats().InFlight)
				s.complete(s.takeHeld())
			}
		}
		if stats := e.Stats(); most > 6 || stats.Waiting != 0 || stats.InFlight != 0 {
			t.Error(backend, most, stats)
		}
		s.release()
	}
}

// A device completes nothing. Plain calls make the transfers that wait for it.
func TestTransfersDoNotWaitForHungDevice(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	f := openOnSmallQueue(t, e)
	s.holdResults()
	done := make(chan int, 40)
	wait := manyReads(f, 40, func(i int, err error) {
		expect(t, err == nil, "%v, %v", i, err)
		done <- i
	})
	returns(t, "the reads that wait", func() {
		for range 34 {
			<-done
		}
	})
	s.release()
	returns(t, "the others", wait)
}

// Close ends the transfers that wait for a device.
func TestCloseEndsWhatWaitsForDevice(t *testing.T) {
	e, s := scriptedEngine(t, Options{closeWait: time.Second})
	f := openOnSmallQueue(t, e)
	s.holdResults()
	failed := make(chan error, 40)
	wait := manyReads(f, 40, func(_ int, err error) { failed <- err })
	eventually(t, "all arrive", func() bool { return e.Stats().Waiting == 34 })
	_ = e.Close()
	returns(t, "the reads", wait)
	for range 40 {
		err := <-failed
		expect(t, errors.Is(err, ErrEngineClosed) || errors.Is(err, ErrAbandoned), "%v", err)
	}
	_ = f.Close()
}

// The partitions and files of a disk have its queue, and share it.
func TestQueueOfDisk(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, []byte("x"), 0o600))
	f := get(os.Open(name))(t)
	defer f.Close()
	q := blockQueueOf(int(f.Fd()))
	if q == nil {
		t.Skip("skipped: the temporary folder is on no disk")
	}
	expect(t, q.requests >= 1 && blockQueueOf(int(f.Fd())) == q, "%v", q)
	for _, c := range [][3]int{{64, 1, 48}, {64, 2, 24}, {1, 8, 1}} {
		got := deviceLimit(c[0], c[1])
		expect(t, got == c[2], "%v, %v", c, got)
	}
}

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

// A write by a plain call changes the times of the file, too, and so do other changes: the next
// read asks for them.
func TestReadAsksForTheAccessTimeAfterEachChange(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, make([]byte, 4*pageSize), os.O_RDWR)
	d := openIn(t, e, make([]byte, 4*pageSize), os.O_RDWR|Direct)
	batch := func(f *File) func() error {
		return func() error { return f.WriteBatch(pages(pageSize), DataSync) }
	}
	source := func(flag int) *File { return openIn(t, e, page(), os.O_RDONLY|flag) }
	for what, write := range map[string]struct {
		f  *File
		do func() error
	}{
		"direct":          {d, func() error { return errorOf(d.WriteAt(page(), 0)) }},
		"buffered":        {f, func() error { return errorOf(f.WriteAt([]byte("x"), 0)) }},
		"batch, direct":   {d, batch(d)},
		"batch, buffered": {f, batch(f)},
		"Chmod":           {f, func() error { return f.Chmod(0o600) }},
		"Chown":           {f, func() error { return f.Chown(-1, -1) }},
		"Preallocate":     {f, func() error { return f.Preallocate(0, pageSize) }},
		"Truncate":        {f, func() error { return f.Truncate(4 * pageSize) }},
		"ReadFrom":        {f, func() error { return errorOf(f.ReadFrom(source(Direct))) }},
		"WriteTo":         {f, func() error { return errorOf(source(Direct).WriteTo(f)) }},
		// By the kernel.
		"ReadFrom, buffered": {f, func() error { return errorOf(f.ReadFrom(source(0))) }},
		"WriteTo, buffered":  {f, func() error { return errorOf(source(0).WriteTo(f)) }},
	} {
		a := &write.f.accessTime
		a.seen.Store(a.writes.Load() + 1)
		err := write.do()
		expect(t, err == nil, "%v, %v", what, err)
		expect(t, a.seen.Load() <= a.writes.Load(), "%v: the next read does not ask", what)
	}
}

// After the first transfer of a file on ext4, its whole list of extents is in memory.
func TestFirstTransferReadsExtents(t *testing.T) {
	// EXT4_IOC_CLEAR_ES_CACHE and EXT4_IOC_GET_ES_CACHE: the kernel forgets what it knows of the
	// extents, and counts what it knows.
	const forget, known = 0x6628, 0xc020662a
	const extents = 1200 // In three blocks of the list, and a half.
	for _, backend := range queueBackends {
		e := newOrSkip(t, Options{Backend: backend})
		f := openIn(t, e, nil, os.O_RDWR|Direct)
		writer := get(os.OpenFile(f.Name(), os.O_WRONLY, 0))(t)
		defer func() { _ = writer.Close() }()
		for i := range int64(extents) {
			must(t, errorOf(writer.WriteAt(make([]byte, pageSize), 2*i*pageSize)))
		}
		must(t, writer.Sync())
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, writer.Fd(), forget, 0); errno != 0 {
			t.Skip("skipped: no ext4 of Linux 5.4: ", errno)
		}
		moves(t, pageSize)(f.ReadAt(make([]byte, pageSize), 0))
		m := fiemap{length: 1<<64 - 1} // Without room for extents, they are counted.
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, writer.Fd(), known,
			uintptr(unsafe.Pointer(&m))); errno != 0 || m.mapped < extents {
			t.Error(backend, ": ", m.mapped, " extents known, ", errno)
		}
	}
}

func TestZramBelow(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"sda/sda1", "zram1", "dm-0/slaves", "md0/slaves", "md0/md0p1",
		"dev"} {
		must(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
	}
	link := func(to, at string) { must(t, os.Symlink(to, filepath.Join(root, at))) }
	link("../../sda", "dm-0/slaves/sda")
	link("../../zram1", "dm-0/slaves/zram1")
	link("../../dm-0", "md0/slaves/dm-0")
	for i, c := range []struct {
		device string
		want   bool
	}{{"sda", false}, {"sda/sda1", false}, {"zram1", true}, {"dm-0", true}, {"md0", true},
		{"md0/md0p1", true}} {
		at := fmt.Sprint("dev/", i)
		link("../"+c.device, at)
		got, err := isZram(filepath.Join(root, at), stackedDevices)
		expect(t, got == c.want && err == nil, "%v, %v, %v", c.device, got, err)
	}
	_, err := isZram(root+"/dev/missing", stackedDevices)
	wantError(t, "missing", err, fs.ErrNotExist)
}

func TestDriverOf(t *testing.T) {
	const devices = "Character devices:\n  9 st\n254 zram\n\nBlock devices:\n  9 md\n253 zram\n" +
		"254 virtblk\n"
	for major, want := range map[uint64]string{9: "md", 253: "zram", 254: "virtblk", 7: ""} {
		got := driverOf(major, devices)
		expect(t, got == want, "%v, %v", major, got)
	}
}

// On zram memory is aligned to pages, whatever the kernel reports.
func TestWholePages(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, bytesOf(8192), os.O_RDWR|Direct)
	got := f.directLimits().memory
	expect(t, got >= pageSize || !takesWholePages(f.fd), "memory is aligned to %v", got)
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
	expect(t, took < 800*time.Millisecond, "%s returned after %v", what, took)
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
	h.set("image write delay 1000")
	var over atomic.Bool
	defer over.Store(true)
	var commits sync.WaitGroup
	commits.Go(func() {
		for n := int64(0); !over.Load(); n++ {
			check(t, other.Truncate(pageSize*(1+n%7)))
			check(t, other.Sync())
		}
	})
	for i := range 4 {
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
		// (A file that was read last may still be on its way to be closed.)
		eventually(t, "umount", func() bool { return syscall.Unmount(dir, 0) == nil })
		must(t, errors.Join(image.Sync(), image.Advise(0, 0, AdviceDontNeed)))
		must(t, syscall.Mount(device, dir, "ext4", 0, ""))
		f := open(t, newOrSkip(t, Options{}), name, os.O_RDONLY)
		h.set("image read freeze")
		returns(t, what, func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			defer cancel()
			wantError(t, what, readers(f)[what](ctx), context.DeadlineExceeded)
		})
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
	if n, ok := readCached(f.fd, page(), 0, 0); !cachedReads || !ok || n == 0 {
		skip.Test(t, "this file system does not report what is cached")
	}
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
