//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Real devices that fail and real file systems that are frozen, on loop devices. These tests need
// root.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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

// A disk fails while it writes back data of another file. The sync of the group commit reports
// that, and no second sync, which would succeed, hides it.
func TestDeviceFails(t *testing.T) {
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root mounts")
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("skipped: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	device := loopDevice(t, filepath.Join(dir, "image"), 64<<20)
	for _, backend := range []Backend{BackendURing, BackendKAIO, BackendThreads} {
		for _, direct := range []int{Direct, 0} {
			t.Run(fmt.Sprint(backend, " direct ", direct != 0), func(t *testing.T) {
				e := newOrSkip(t, Options{Backend: backend})
				defer e.Close()
				f, err := e.OpenFile(device, os.O_RDWR|direct, 0)
				must(t, err)
				defer f.Close()
				commit := func() error {
					return f.WriteBatch([]Transfer{{P: alignedSlice(pageSize, pageSize)},
						{P: alignedSlice(pageSize, pageSize), Off: pageSize}}, DataSync)
				}
				must(t, commit())
				other, err := os.OpenFile(device, os.O_RDWR, 0)
				must(t, err)
				defer other.Close()
				if _, err := other.WriteAt(bytes.Repeat([]byte{byte(len(backend))}, 8<<20),
					32<<20); err != nil {
					t.Fatal(err)
				}
				if err := commit(); !errors.Is(err, syscall.EIO) {
					t.Error("the error was lost: ", err)
				}
			})
		}
	}
}

// Writers block while a file system is frozen. Contexts end in time, files and engines close, and
// nothing is damaged after the thaw.
func TestFrozenFileSystem(t *testing.T) {
	image := filepath.Join(t.TempDir(), "image")
	device := loopDevice(t, image, 64<<20)
	run(t, "mkfs.ext4", "-q", device)
	dir := t.TempDir()
	if err := syscall.Mount(device, dir, "ext4", 0, ""); err != nil {
		t.Skip("skipped: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	for _, backend := range []Backend{BackendURing, BackendKAIO, BackendThreads} {
		for _, direct := range []int{0, Direct} {
			t.Run(fmt.Sprint(backend, " direct ", direct != 0), func(t *testing.T) {
				e := newOrSkip(t, Options{Backend: backend, closeWait: 200 * time.Millisecond})
				name := filepath.Join(dir, "file")
				must(t, os.WriteFile(name, bytes.Repeat([]byte("x"), 2<<20), 0o600))
				f, err := e.OpenFile(name, os.O_RDWR|direct, 0)
				must(t, err)
				thaw := freeze(t, dir)
				defer thaw()
				reason := errors.New("enough")
				memory := alignedSlice(2*pageSize, pageSize)
				for what, do := range contextMethods(f, memory) {
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(20*time.Millisecond, func() { cancel(reason) })
					returns(t, what, func() {
						err := do(ctx)
						if strings.HasPrefix(what, "Write") && !errors.Is(err, reason) ||
							err != nil && !errors.Is(err, reason) {
							t.Errorf("%s: %v", what, err)
						}
					})
				}
				returns(t, "File.Close", func() {
					check(t, f.Close())
				})
				returns(t, "Engine.Close", func() { _ = e.Close() })
				thaw()
				got, err := os.ReadFile(name)
				if err != nil || len(got) != 2<<20 {
					t.Error(len(got), err)
				}
			})
		}
	}
}

// freeze makes a file system block all writes until thaw.
func freeze(t *testing.T, dir string) (thaw func()) {
	t.Helper()
	const fifreeze, fithaw = 0xc0045877, 0xc0045878
	d, err := os.Open(dir)
	must(t, err)
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
	dir := t.TempDir()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root mounts")
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=4m"); err != nil {
		t.Skip("skipped: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	device := loopDevice(t, filepath.Join(dir, "image"), 64<<20)
	e := newOrSkip(t, Options{})
	f, err := e.OpenFile(device, os.O_RDWR, 0)
	must(t, err)
	lose := func() { // The image has no room for so much.
		t.Helper()
		if _, err := f.WriteAt(bytes.Repeat([]byte("lost"), 4<<20), 0); err != nil {
			t.Fatal(err)
		}
	}
	// A goroutine that starts late may come after the report, and then has no error.
	most := 0
	for round := 0; round < 10 && most < 8; round++ {
		lose()
		errs := make([]error, 16)
		var all sync.WaitGroup
		start := make(chan struct{})
		for i := range errs {
			all.Go(func() {
				<-start
				errs[i] = f.Datasync()
			})
		}
		close(start)
		returns(t, "a sync", all.Wait)
		failed := 0
		for _, err := range errs {
			if errors.Is(err, syscall.EIO) {
				failed++
			}
		}
		if failed == 0 {
			t.Error("the error was lost")
		}
		most = max(most, failed)
	}
	if most < 8 {
		t.Errorf("at most %d of 16 syncs failed", most)
	}

	lose()
	if err := f.SyncRange(0, 0, RangeWaitBefore|RangeWrite|RangeWaitAfter); err == nil {
		t.Error("SyncRange has no error")
	}
	if err := f.Datasync(); !errors.Is(err, syscall.EIO) {
		t.Error("SyncRange took the error:", err)
	}
}
