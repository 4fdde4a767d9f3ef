//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Files on a FUSE file system that misbehaves (crates/ringway-hostile): the results are those of
// package os.

package ringway

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// hostileServer returns the path of the server, which it builds if necessary.
var hostileServer = sync.OnceValues(func() (string, error) {
	target := os.Getenv("CARGO_TARGET_DIR")
	if target == "" {
		target = "../../target"
	}
	for _, profile := range []string{"debug", "release"} {
		if path := filepath.Join(target, profile, "hostile-fs"); isFile(path) {
			return path, nil
		}
	}
	cargo := exec.Command("cargo", "build", "--quiet", "--package", "ringway-hostile")
	cargo.Dir = "../.."
	if out, err := cargo.CombinedOutput(); err != nil {
		return "", fmt.Errorf("hostile-fs is not built: %w: %s", err, out)
	}
	return filepath.Join(target, "debug", "hostile-fs"), nil
})

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// hostile is a mounted file system. Its files are those of a directory below.
type hostile struct {
	t          *testing.T
	dir, below string
}

// mountHostile mounts the file system until the test ends, or skips the test.
func mountHostile(t *testing.T) *hostile {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: only root mounts")
	}
	server, err := hostileServer()
	if err != nil {
		t.Skip("skipped: ", err)
	}
	h := &hostile{t, t.TempDir(), t.TempDir()}
	command := exec.Command(server, h.below, h.dir)
	in := get(command.StdinPipe())(t)
	out := get(command.StdoutPipe())(t)
	if err := command.Start(); err != nil {
		t.Skip("skipped: ", err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = command.Wait()
		_ = syscall.Unmount(h.dir, syscall.MNT_DETACH)
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Skip("skipped: FUSE is not available: ", line, err)
	}
	return h
}

// set gives the server a rule.
func (h *hostile) set(rule string) {
	h.t.Helper()
	f, err := os.OpenFile(filepath.Join(h.dir, ".hostile"), os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(rule + "\n")
		_ = f.Close()
	}
	if err != nil {
		h.t.Fatal(rule, ": ", err)
	}
}

// count returns how often an operation was requested.
func (h *hostile) count(operation string) (n int) {
	h.t.Helper()
	text := get(os.ReadFile(filepath.Join(h.dir, ".hostile")))(h.t)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, operation+" "); ok {
			_, _ = fmt.Sscan(rest, &n)
		}
	}
	return n
}

// onHostile runs a test on every backend, with and without direct I/O, with a file of this content.
func onHostile(t *testing.T, content []byte, rules []string,
	test func(t *testing.T, h *hostile, f *File)) {
	h := mountHostile(t)
	each(t, func(t *testing.T, e *Engine, direct int) {
		h.t = t
		h.set("clear")
		must(t, os.WriteFile(filepath.Join(h.below, "file"), content, 0o600))
		for _, rule := range rules {
			h.set(rule)
		}
		test(t, h, open(t, e, filepath.Join(h.dir, "file"), os.O_RDWR|direct))
	})
}

// A server that does not describe a file that it has opened: package os opens it, since open(2)
// does not ask.
func TestHostileAttributes(t *testing.T) {
	rules := []string{"file getattr fail 13"}
	onHostile(t, make([]byte, 10_000), rules, func(t *testing.T, _ *hostile, f *File) {
		wantError(t, "Stat", errorOf(f.Stat()), syscall.EACCES)
		p := NewBuffer(pageSize)
		defer p.Release()
		moves(t, pageSize)(f.ReadAt(p.Bytes(), pageSize))
		moves(t, pageSize)(f.Read(p.Bytes()))
		moves(t, pageSize)(f.WriteAt(p.Bytes(), 0))
		must(t, errors.Join(f.WriteBatch([]Transfer{{P: p.Bytes(), Off: pageSize}}, DataSync),
			f.ReadBatch([]Transfer{{P: p.Bytes(), Off: pageSize}}), f.Sync(), f.Close()))
		wantError(t, "Read", errorOf(f.Read(p.Bytes())), os.ErrClosed)
	})
}

// Reads that are short in the middle of a file go on, and an unknown size limits nothing.
func TestHostileReads(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 300_000)
	for _, rules := range [][]string{
		{"file read short 1000"},
		{"file direct on", "file size 0"},
		{"file direct on", "file size 5000", "file read short 70000"},
	} {
		t.Run(strings.Join(rules, ", "), func(t *testing.T) {
			onHostile(t, content, rules, func(t *testing.T, h *hostile, f *File) {
				if len(rules) == 1 && !f.direct {
					return // The kernel takes a short read through the page cache for the end.
				}
				for _, off := range []int{0, 1, 4096, 99_999} {
					reads(t, f, int64(off), content[off:][:50_000])
				}
				p := make([]byte, 10)
				n, err := f.ReadAt(p, int64(len(content)-4))
				expect(t, n == 4 && err == io.EOF, "at the end: %v, %v", n, err)
				for _, n := range []int{len(content) + 10, largestBlock + 1} {
					buffer, err := f.ReadBuf(t.Context(), 0, n)
					require(t, err == io.EOF && bytes.Equal(buffer.Bytes(), content),
						"ReadBuf: %v, %v", n, err)
					buffer.Release()
				}
				got, err := f.readWhole()
				expect(t, err == nil && bytes.Equal(got, content), "%d bytes, %v", len(got), err)
			})
		})
	}
}

// Writes that the server makes in part go on behind that part.
func TestHostileWrites(t *testing.T) {
	rules := []string{"file direct on", "file write short 1000"}
	onHostile(t, make([]byte, 8*pageSize), rules, func(t *testing.T, h *hostile, f *File) {
		want := content(t, f)
		for i, write := range []func(p []byte, off int64) error{
			func(p []byte, off int64) error { return errorOf(f.WriteAt(p, off)) },
			func(p []byte, off int64) error {
				batch := []Transfer{{P: p[:pageSize], Off: off},
					{P: p[pageSize:], Off: off + pageSize}}
				err := f.WriteBatch(batch, DataSync)
				allWritten(t, batch)
				return err
			},
		} {
			p := alignedSlice(2*pageSize, pageSize)
			off := int64(1+3*i) * pageSize
			copy(p, bytesOf(len(p)+i))
			must(t, write(p, off))
			copy(want[off:], p)
			got := get(os.ReadFile(filepath.Join(h.below, "file")))(t)
			require(t, bytes.Equal(got, want), "way %d: other bytes", i)
		}
	})
}

// A server that refuses a direct transfer as it is gets it in pages, once it has refused one.
func TestHostileAlignment(t *testing.T) {
	content := bytesOf(4 * pageSize)
	onHostile(t, content, nil, func(t *testing.T, h *hostile, f *File) {
		if !f.direct {
			return
		}
		aligned := alignedSlice(2*pageSize, pageSize)
		odd := aligned[1:][:pageSize]
		h.set(fmt.Sprintf("file read fail %d 1", syscall.EINVAL))
		wantError(t, "an aligned read", errorOf(f.ReadAt(aligned, 0)), syscall.EINVAL)
		expect(t, !f.needsPages.Load(), "pages, although alignment was not the reason")
		for _, op := range []string{"write", "read"} {
			f := open(t, f.engine, f.Name(), os.O_RDWR|Direct)
			h.set(fmt.Sprintf("file %s fail %d 1", op, syscall.EINVAL))
			if op == "write" {
				copy(odd, content[pageSize:])
				moves(t, pageSize)(f.WriteAt(odd, pageSize))
			}
			reads(t, f, 100, content[100:][:5000])
			expect(t, f.needsPages.Load(), "%s: no pages", op)
		}
	})
}

// A batch with a sync sends a sync to the server, and returns its error.
func TestHostileSync(t *testing.T) {
	onHostile(t, make([]byte, 4*pageSize), nil, func(t *testing.T, h *hostile, f *File) {
		before := h.count("fsync")
		err := f.WriteBatch(pages(pageSize), DataSync)
		expect(t, err == nil && h.count("fsync") != before, "%v, %v", err, h.count("fsync"))
		h.set("file fsync fail 5")
		wantError(t, "WriteBatch", f.WriteBatch(pages(pageSize), DataSync), syscall.EIO)
		h.set("clear")
	})
}

// Zeroes are written where the server reserves nothing. Errors of writes and syncs are returned.
func TestHostilePreallocateWritten(t *testing.T) {
	onHostile(t, page(), nil, func(t *testing.T, h *hostile, f *File) {
		h.set(fmt.Sprintf("file fallocate fail %d", syscall.EOPNOTSUPP))
		before := h.count("fsync")
		must(t, f.PreallocateWritten(pageSize, pageSize))
		expect(t, h.count("fsync") != before, "nothing was synced")
		want := append(page(), make([]byte, pageSize)...)
		expect(t, bytes.Equal(content(t, f), want), "not the data with zeroes behind it")
		h.set("file fsync fail 5")
		wantError(t, "a sync", f.PreallocateWritten(2*pageSize, pageSize), syscall.EIO)
		h.set("file fallocate fail 28")
		wantError(t, "a full device", f.PreallocateWritten(3*pageSize, pageSize), syscall.ENOSPC)
		h.set("clear")
	})
}

// A server that never stops to answer EAGAIN has that answer shown, as a blocking call does.
func TestHostileTryAgain(t *testing.T) {
	rules := []string{"file read fail 11", "file write fail 11", "file direct on"}
	onHostile(t, make([]byte, 4*pageSize), rules, func(t *testing.T, h *hostile, f *File) {
		for what, do := range map[string]func() error{
			"ReadAt":     func() error { return errorOf(f.ReadAt(page(), 0)) },
			"WriteAt":    func() error { return errorOf(f.WriteAt(page(), 0)) },
			"WriteBatch": func() error { return f.WriteBatch(pages(pageSize), DataSync) },
		} {
			begin(t, what, do)(syscall.EAGAIN)
		}
	})
}

// Errors of a sync are returned, also EINTR: the kernel reports lost data with the errno with which
// the server failed the write, once.
func TestHostileSyncErrors(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.EINTR, syscall.EAGAIN} {
		onHostile(t, page(), nil, func(t *testing.T, h *hostile, f *File) {
			for what, do := range map[string]func() error{
				"Sync":       f.Sync,
				"Datasync":   f.Datasync,
				"WriteBatch": func() error { return f.WriteBatch(pages(pageSize), DataSync) },
			} {
				h.set(fmt.Sprintf("file fsync fail %d 1", errno))
				wantError(t, what, do(), errno)
				must(t, do())
			}
		})
	}
}

// A context ends although the server does not answer whatever ringway asks it first.
func TestHostileContext(t *testing.T) {
	var rules []string
	for _, op := range []string{"getattr", "statfs", "read", "write", "fsync"} {
		rules = append(rules, "file "+op+" freeze", "* "+op+" freeze")
	}
	onHostile(t, make([]byte, 4*pageSize), nil, func(t *testing.T, h *hostile, f *File) {
		for _, rule := range rules {
			h.set(rule)
		}
		for what, do := range contextMethods(f, alignedSlice(2*pageSize, pageSize)) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			returns(t, what, func() {
				err := do(ctx)
				expect(t, err == nil || errors.Is(err, context.DeadlineExceeded), "%v: %v", what,
					err)
			})
			cancel()
		}
		h.set("clear")
	})
}

// A server that answers EINTR for ever is asked again, as by package os, until the context ends:
// nothing is left that asks it then.
func TestHostileInterrupts(t *testing.T) {
	rules := []string{"file direct on", "file read fail 4", "file write fail 4"}
	onHostile(t, make([]byte, 4*pageSize), rules, func(t *testing.T, h *hostile, f *File) {
		for what, do := range contextMethods(f, alignedSlice(2*pageSize, pageSize)) {
			if what == "SyncContext" {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			returns(t, what, func() { wantError(t, what, do(ctx), context.DeadlineExceeded) })
			cancel()
		}
		must(t, f.Close())
		eventually(t, "the descriptor is closed", func() bool { return !isOpen(f.fd) })
	})
}

// Transfers that hang at the server hold up neither those of other files nor other goroutines.
func TestHostileQueueIsFull(t *testing.T) {
	onHostile(t, make([]byte, 64*pageSize), nil, func(t *testing.T, h *hostile, f *File) {
		fine := openIn(t, f.engine, make([]byte, pageSize), os.O_RDONLY|Direct)
		h.set("file read freeze")
		var ends []func(error)
		for i := range 40 { // More than the server's max_background.
			ends = append(ends, begin(t, "a read that hung", func() error {
				return errorOf(f.ReadAt(page(), int64(i)*pageSize))
			}))
		}
		// All of them are in their system calls by then, also on a busy machine. (The kernel
		// completes a request in the thread that submitted it. If that thread entered a call
		// that hangs right after that, the read below would wait for it.)
		time.Sleep(time.Second)
		begin(t, "a read of another file", func() error {
			return errorOf(fine.ReadAt(page(), 0))
		})(nil)
		h.set("clear")
		for _, end := range ends {
			end(nil)
		}
	})
}
