//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Transfers that leave no pages: what the page cache has afterwards.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// residentPages returns which pages of a file the page cache has, without reading any. The file
// belongs to the user: of another one's, mincore(2) says nothing.
func residentPages(t *testing.T, name string) []bool {
	t.Helper()
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	info := get(file.Stat())(t)
	if info.Size() == 0 {
		return nil
	}
	memory, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ,
		syscall.MAP_SHARED)
	must(t, err)
	pages := make([]byte, (len(memory)+pageSize-1)/pageSize)
	_, _, errno := syscall.Syscall(syscall.SYS_MINCORE,
		uintptr(unsafe.Pointer(unsafe.SliceData(memory))), uintptr(len(memory)),
		uintptr(unsafe.Pointer(unsafe.SliceData(pages))))
	require(t, errno == 0, "%v", errno)
	must(t, syscall.Munmap(memory))
	resident := make([]bool, len(pages))
	for i, page := range pages {
		resident[i] = page&1 == 1
	}
	return resident
}

// cachedPages returns how many pages of a file are in the page cache.
func cachedPages(t *testing.T, name string) (cached int) {
	t.Helper()
	for _, resident := range residentPages(t, name) {
		if resident {
			cached++
		}
	}
	return cached
}

// leavesNone fails the test unless soon no page of the file is cached.
func leavesNone(t *testing.T, what, name string) {
	t.Helper()
	for end := time.Now().Add(tooLong); cachedPages(t, name) > 0; time.Sleep(time.Millisecond) {
		require(t, !time.Now().After(end), "%s leaves %d pages", what, cachedPages(t, name))
	}
}

// hasDontCache reports whether the kernel and the file system of a file support the flag.
func hasDontCache(t *testing.T, name string) bool {
	t.Helper()
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	v := newVector(make([]byte, 1))
	_, err = transferVectors(sysPreadv2, int(file.Fd()), []vector{v}, 0, rwfDontCache)
	return err == nil
}

func evictAll(t *testing.T, f *File, name string) {
	t.Helper()
	for end := time.Now().Add(tooLong); cachedPages(t, name) > 0; time.Sleep(time.Millisecond) {
		must(t, f.Sync())
		must(t, f.Advise(0, 0, AdviceDontNeed))
		require(t, !time.Now().After(end), "the pages stay")
	}
}

func TestDontCacheLeavesNoPages(t *testing.T) {
	want := bytesOf(64 * pageSize)
	each(t, func(t *testing.T, e *Engine, direct int) {
		name := fileWith(t, want)
		if direct != 0 || !hasDontCache(t, name) {
			return
		}
		f := open(t, e, name, os.O_RDWR)
		f.SetDontCache(true)
		p := make([]byte, len(want))
		pooled := func() error {
			buffer, err := f.ReadBuf(context.Background(), 0, len(p))
			if err == nil {
				copy(p, buffer.Bytes())
				buffer.Release()
			}
			return err
		}
		here := func() error {
			_, err := f.Seek(0, io.SeekStart)
			if err == nil {
				_, err = io.ReadFull(f, p)
			}
			return err
		}
		batch := func() error {
			// One after the other: pages that two reads use at the same moment stay.
			parts := []Transfer{{P: p[:len(p)/2]}, {P: p[len(p)/2:], Off: int64(len(p) / 2)}}
			return errors.Join(f.ReadBatch(parts[:1]), f.ReadBatch(parts[1:]))
		}
		for what, read := range map[string]func() error{
			"ReadAt":    func() error { return errorOf(f.ReadAt(p, 0)) },
			"ReadBuf":   pooled,
			"Read":      here,
			"ReadBatch": batch,
		} {
			for range 8 { // Some go through a queue, some are tried in the page cache first.
				evictAll(t, f, name)
				clear(p)
				must(t, read())
				require(t, bytes.Equal(p, want), "%v read other bytes", what)
				leavesNone(t, what, name)
			}
		}
		for what, write := range map[string]func() error{
			"WriteAt": func() error { return errorOf(f.WriteAt(want, 0)) },
			"WriteBatch": func() error {
				parts := []Transfer{{P: want[:100]}, {P: want[100:], Off: 100}}
				return f.WriteBatch(parts, DataSync)
			},
			"ReadFrom": func() error {
				from := open(t, e, fileWith(t, want), os.O_RDONLY)
				if _, err := f.Seek(0, io.SeekStart); err != nil {
					return err
				}
				return errorOf(f.ReadFrom(from))
			},
		} {
			must(t, f.Truncate(0)) // ext4 of 6.18 keeps pages that are overwritten.
			must(t, write())
			must(t, f.Sync())
			leavesNone(t, what, name)
		}
		must(t, errorOf(f.ReadAt(p, 0)))
		expect(t, bytes.Equal(p, want) && f.DontCacheRefusal() == nil, "written: %v, %v",
			bytes.Equal(p, want), f.DontCacheRefusal())
		// What was cached before stays. Another file, with the same pooled requests, caches.
		f.SetDontCache(false)
		must(t, errorOf(f.ReadAt(p, 0)))
		other := open(t, e, fileWith(t, want), os.O_RDONLY)
		must(t, other.Advise(0, 0, AdviceDontNeed))
		must(t, errorOf(other.ReadAt(p, 0)))
		before := cachedPages(t, name)
		f.SetDontCache(true)
		must(t, errorOf(f.ReadAt(p, 0)))
		if now := cachedPages(t, name); before == 0 || now != before ||
			cachedPages(t, other.Name()) == 0 {
			t.Error(before, now, cachedPages(t, other.Name()))
		}
	})
}

// Whatever sends a file that leaves no pages, sendfile(2) does not: it would leave all of them.
func TestDontCacheLeavesNoPagesWhereAFileIsSent(t *testing.T) {
	want := bytesOf(64 * pageSize)
	e := newOrSkip(t, Options{})
	name := fileWith(t, want)
	if !hasDontCache(t, name) {
		t.Skip("skipped: every transfer leaves pages on this kernel or file system")
	}
	f := open(t, e, name, os.O_RDWR)
	f.SetDontCache(true)
	write := func(network string, send func(net.Conn) error) func() ([]byte, error) {
		return func() ([]byte, error) {
			r, w := sockets(t, network)
			sent := make(chan error, 1)
			go func() { sent <- errors.Join(send(w), w.Close()) }()
			got, err := io.ReadAll(r)
			return got, errors.Join(err, <-sent)
		}
	}
	for what, send := range map[string]func() ([]byte, error){
		"io.Copy to a TCP connection": write("tcp", func(w net.Conn) error {
			return errorOf(io.Copy(w, f))
		}),
		"io.CopyN to a TCP connection": write("tcp", func(w net.Conn) error {
			return errorOf(io.CopyN(w, f, int64(len(want))))
		}),
		"io.Copy to a Unix socket": write("unix", func(w net.Conn) error {
			return errorOf(io.Copy(w, f))
		}),
	} {
		evictAll(t, f, name)
		must(t, errorOf(f.Seek(0, io.SeekStart)))
		got, err := send()
		expect(t, err == nil && bytes.Equal(got, want), "%s: %d bytes, %v", what, len(got), err)
		leavesNone(t, what, name)
	}
	wantError(t, "SyscallConn", errorOf(f.SyscallConn()), syscall.EOPNOTSUPP)
	f.SetDontCache(false)
	check(t, errorOf(f.SyscallConn()))
}

// Where the flag is refused, transfers are made without it, and the file has the reason.
func TestDontCacheIsLeftOutWhereItIsRefused(t *testing.T) {
	want := bytesOf(3 * pageSize)
	each(t, func(t *testing.T, e *Engine, direct int) {
		if direct != 0 {
			return
		}
		dir := get(os.MkdirTemp("/dev/shm", "ringway"))(t)
		defer os.RemoveAll(dir)
		for _, write := range []bool{false, true} {
			name := filepath.Join(dir, "file")
			must(t, os.WriteFile(name, want, 0o600))
			if hasDontCache(t, name) {
				return
			}
			f := open(t, e, name, os.O_RDWR)
			f.SetDontCache(true)
			if why := f.DontCacheRefusal(); why != nil {
				t.Error("before the first transfer:", why)
			}
			p := bytes.Clone(want)
			if write {
				must(t, f.WriteBatch([]Transfer{{P: p}}, DataSync))
			} else {
				must(t, errorOf(f.ReadAt(p, 0)))
			}
			if why := f.DontCacheRefusal(); why == nil || why.Errno != syscall.EOPNOTSUPP {
				t.Errorf("%v", why)
			}
			must(t, errorOf(f.WriteAt(p, 0)))
			must(t, errorOf(f.ReadAt(p, 0)))
			expect(t, bytes.Equal(p, want), "other bytes")
			again := open(t, e, name, os.O_RDONLY)
			expect(t, again.DontCacheRefusal() == nil, "another file knows of it")
		}
	})
}

// An error that has another cause is returned, and is no refusal of the flag.
func TestDontCacheHidesNoOtherError(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		name := fileWith(t, bytesOf(pageSize))
		f := open(t, e, name, os.O_WRONLY|direct)
		f.SetDontCache(true)
		_, err := f.ReadAt(make([]byte, pageSize), 0)
		wantError(t, "a read of a file that is open for writing", err, syscall.EBADF)
		why := f.DontCacheRefusal()
		expect(t, why == nil, "%v", why)
	})
}
