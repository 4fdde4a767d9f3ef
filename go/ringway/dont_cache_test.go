//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Transfers that leave no pages: what the page cache has afterwards.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
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
	eventually(t, what+" leaves no page", func() bool { return cachedPages(t, name) == 0 })
}

// hasDontCache reports whether the kernel and the file system of a file support the flag.
func hasDontCache(t *testing.T, name string) bool {
	t.Helper()
	file, err := os.Open(name)
	must(t, err)
	defer file.Close()
	v := newVector(make([]byte, 1))
	_, err = transferVectors(background, sysPreadv2, int(file.Fd()), []vector{v}, 0,
		rwfDontCache)
	return err == nil
}

func evictAll(t *testing.T, f *File, name string) {
	t.Helper()
	eventually(t, "the pages go", func() bool {
		must(t, errors.Join(f.Sync(), f.Advise(0, 0, AdviceDontNeed)))
		return cachedPages(t, name) == 0
	})
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
		for what, read := range map[string]func() error{
			"ReadAt": func() error { return errorOf(f.ReadAt(p, 0)) },
			"ReadBuf": func() error {
				buffer := get(f.ReadBuf(context.Background(), 0, len(p)))(t)
				defer buffer.Release()
				copy(p, buffer.Bytes())
				return nil
			},
			"Read": func() error {
				must(t, errorOf(f.Seek(0, io.SeekStart)))
				return errorOf(io.ReadFull(f, p))
			},
			"ReadBatch": func() error {
				// One after the other: pages that two reads use at the same moment stay.
				parts := []Transfer{{P: p[:len(p)/2]}, {P: p[len(p)/2:], Off: int64(len(p) / 2)}}
				return errors.Join(f.ReadBatch(parts[:1]), f.ReadBatch(parts[1:]))
			},
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
				must(t, errorOf(f.Seek(0, io.SeekStart)))
				return errorOf(f.ReadFrom(open(t, e, fileWith(t, want), os.O_RDONLY)))
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
		now, others := cachedPages(t, name), cachedPages(t, other.Name())
		expect(t, before > 0 && now == before && others > 0, "%v, %v, %v", before, now, others)
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
	for what, from := range map[string]io.Reader{
		"tcp": f, "tcp, a part": io.LimitReader(f, int64(len(want))), "unix": f,
	} {
		evictAll(t, f, name)
		must(t, errorOf(f.Seek(0, io.SeekStart)))
		network, _, _ := strings.Cut(what, ",")
		r, w := sockets(t, network)
		sent := begin(t, what, func() error {
			return errors.Join(errorOf(io.Copy(w, from)), w.Close())
		})
		expect(t, bytes.Equal(get(io.ReadAll(r))(t), want), "%s: other bytes", what)
		sent(nil)
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
			expect(t, f.DontCacheRefusal() == nil, "refused before the first transfer")
			p := bytes.Clone(want)
			if write {
				must(t, f.WriteBatch([]Transfer{{P: p}}, DataSync))
			} else {
				must(t, errorOf(f.ReadAt(p, 0)))
			}
			why := f.DontCacheRefusal()
			expect(t, why != nil && why.Errno == syscall.EOPNOTSUPP, "%v", why)
			must(t, errors.Join(errorOf(f.WriteAt(p, 0)), errorOf(f.ReadAt(p, 0))))
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
