//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Contexts that end before, during or after an operation.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"reflect"
	"syscall"
	"testing"
	"time"
)

// contextMethods are the methods with a context. They transfer some bytes of a file.
func contextMethods(f *File, memory []byte) map[string]func(context.Context) error {
	half := len(memory) / 2
	batch := func(second int64) []Transfer {
		return []Transfer{{P: memory[:half]}, {P: memory[half:], Off: second}}
	}
	return map[string]func(context.Context) error{
		"ReadAtContext": func(ctx context.Context) error {
			return errorOf(f.ReadAtContext(ctx, memory, 0))
		},
		"WriteAtContext": func(ctx context.Context) error {
			return errorOf(f.WriteAtContext(ctx, memory, 0))
		},
		"SyncContext": f.SyncContext,
		"ReadBuf": func(ctx context.Context) error {
			return errorOf(f.ReadBuf(ctx, 0, len(memory)))
		},
		"ReadBatchContext": func(ctx context.Context) error {
			return f.ReadBatchContext(ctx, batch(int64(half)))
		},
		"WriteBatchContext": func(ctx context.Context) error {
			return f.WriteBatchContext(ctx, batch(int64(half)), DataSync)
		},
		"WriteBatchContext, scattered": func(ctx context.Context) error {
			return f.WriteBatchContext(ctx, batch(1<<20), NoSync)
		},
	}
}

// endsLater calls a method with a context that ends soon, and waits for its error.
func endsLater(t *testing.T, what string, do func(context.Context) error, cause error) (err error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(cause) })
	returns(t, what, func() { err = do(ctx) })
	return err
}

// For each way to transfer, a context that has ended starts no operation, and one that ends later
// makes the method return, whatever the kernel does. The caller's memory is not touched afterwards.
// A cause that is io.EOF is an error, and never the end of a file: a reader would take the part for
// the whole.
func TestContextEnds(t *testing.T) {
	for _, cause := range []error{errors.New("enough"), io.EOF} {
		each(t, func(t *testing.T, other *Engine, direct int) {
			e, s := scriptedEngine(t, Options{Backend: other.Backend(), Threads: 4})
			f := openIn(t, e, bytes.Repeat([]byte("x"), 2<<20), os.O_RDWR|direct)
			memory := alignedSlice(2*pageSize, pageSize)
			check := func(what string, err error) {
				t.Helper()
				var path *os.PathError
				expect(t, err != io.EOF && errors.Is(err, cause) && errors.As(err, &path) &&
					path.Path == f.Name() && path.Err != io.EOF, "%s: %v (%T)", what, err, err)
			}
			ended, cancel := context.WithCancelCause(t.Context())
			cancel(cause)
			for what, do := range contextMethods(f, memory) {
				check(what+", ended", do(ended))
			}
			batch := pages(1 << 20)
			check("ReadBatchContext", f.ReadBatchContext(ended, batch))
			check("its first transfer", batch[0].Err)
			n := s.count.Load()
			expect(t, n == 0, "%d operations were started", n)
			expect(t, bytes.Equal(memory, make([]byte, len(memory))) &&
				bytes.Count(content(t, f), []byte("x")) == 2<<20, "something was transferred")

			// Nothing completes, and no slot is free for plain calls.
			s.holdResults()
			e.fillLanes()
			for what, do := range contextMethods(f, memory) {
				check(what+", later", endsLater(t, what, do, cause))
			}
			// What was held back completes now, and must not write to the caller's memory.
			want := bytes.Repeat([]byte("y"), len(memory))
			copy(memory, want)
			begin(t, "File.Close", f.Close)(nil)
			e.drainLanes()
			s.release()
			closeAll(t, e)
			expect(t, bytes.Equal(memory, want), "memory of the caller was written")
			eventually(t, "the descriptor is closed", func() bool { return !isOpen(f.fd) })
		})
	}
}

// A context that ends cancels its operation in the kernel, if the kernel can do that.
func TestContextEndReachesTheKernel(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendURing, AlwaysRing: true, Rings: 1})
	f, _ := blockingPipe(t, e)
	f.storage = true // So that its reads go to a ring.
	ctx, cancel := context.WithCancel(t.Context())
	read := begin(t, "the read", func() error { // do waits for the kernel.
		return errorOf(e.do(ctx, e.shard(), f.request(opRead, make([]byte, 10), atCurrent)))
	})
	submitted(t, e)
	cancel()
	read(context.Canceled)
	begin(t, "File.Close", f.Close)(nil)
}

// When the context of a batch ends, each of its writes has the cause, and each read without a
// result. A read of no bytes has its result.
func TestContextEndOfABatchWithEmptyTransfers(t *testing.T) {
	each(t, func(t *testing.T, other *Engine, direct int) {
		e, s := scriptedEngine(t, Options{Backend: other.Backend(), Threads: 4})
		f := openIn(t, e, make([]byte, 2*pageSize), os.O_RDWR|direct)
		appending := open(t, e, f.Name(), os.O_WRONLY|os.O_APPEND|direct)
		s.holdResults()
		e.fillLanes()
		cause := errors.New("enough")
		for what, do := range map[string]func(context.Context, []Transfer) error{
			"ReadBatchContext": f.ReadBatchContext,
			"WriteBatchContext": func(ctx context.Context, batch []Transfer) error {
				return f.WriteBatchContext(ctx, batch, DataSync)
			},
			"WriteBatchContext, appending": func(ctx context.Context, batch []Transfer) error {
				return appending.WriteBatchContext(ctx, batch, DataSync)
			},
		} {
			if what == "ReadBatchContext" && direct == 0 {
				continue // The page cache has it.
			}
			batch := []Transfer{{}, {P: page()}, {Off: pageSize}, {P: page(), Off: pageSize}}
			wantError(t, what, endsLater(t, what, func(ctx context.Context) error {
				return do(ctx, batch)
			}, cause), cause)
			for i := range batch {
				if empty := len(batch[i].P) == 0; empty && what == "ReadBatchContext" {
					check(t, batch[i].Err)
				} else {
					wantError(t, what, batch[i].Err, cause)
				}
			}
		}
		e.drainLanes()
		s.release()
	})
}

// The error of a context that ended is a timeout if the cause is one, as with package os.
func TestCauseIsTimeout(t *testing.T) {
	f := openIn(t, newOrSkip(t, Options{Backend: BackendThreads}), []byte("x"), os.O_RDWR)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := f.ReadAtContext(ctx, make([]byte, 1), 0)
	expect(t, os.IsTimeout(err) && errors.Is(err, context.DeadlineExceeded), "%v", err)
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.SyncContext(canceled); os.IsTimeout(err) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// An error names the file and the operation once. The cause of a context is wrapped as a whole: it
// may name another file.
func TestErrorsNameTheFileOnce(t *testing.T) {
	f := &File{name: "mine"}
	ours := &os.PathError{Op: "write", Path: "mine", Err: syscall.EIO}
	other := &os.PathError{Op: "open", Path: "other", Err: syscall.ENOENT}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(other)
	for _, c := range []struct{ err, want error }{
		{nil, nil},
		{io.EOF, io.EOF},
		{syscall.EIO, &os.PathError{Op: "read", Path: "mine", Err: syscall.EIO}},
		{ours, ours},
		{causeOf(ctx), &os.PathError{Op: "read", Path: "mine", Err: &endedError{other}}},
	} {
		got := f.fail("read", c.err)
		expect(t, reflect.DeepEqual(got, c.want), "%v: %v", c.err, got)
	}
}

// A few transfers with a context are plain calls, as those without one: a ring would cost more.
func TestFewTransfersWithAContextArePlainCalls(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, make([]byte, 8192), os.O_RDWR|Direct)
	if !e.supports(f, opRead, 0) {
		t.Skip("no queue takes transfers of this file system")
	}
	buffer := e.NewBuffer(4096)
	defer buffer.Release()
	for range 10 {
		_, err := f.ReadAtContext(t.Context(), buffer.Bytes(), 4096)
		must(t, err)
		_, err = f.WriteAtContext(t.Context(), buffer.Bytes(), 0)
		must(t, err)
	}
	expect(t, e.Stats().Pushed == 0, "%+v", e.Stats())
}
