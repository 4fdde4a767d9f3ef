//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Real devices that fail and real file systems that are frozen, on loop devices. These tests need
// root.

package ringway

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/refusal"
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
