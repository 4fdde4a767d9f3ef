//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Contexts that end before, during or after an operation.

package ringway

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
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
			_, err := f.ReadAtContext(ctx, memory, 0)
			return err
		},
		"WriteAtContext": func(ctx context.Context) error {
			_, err := f.WriteAtContext(ctx, memory, 0)
			return err
		},
		"SyncContext": f.SyncContext,
		"ReadBuf": func(ctx context.Context) error {
			_, err := f.ReadBuf(ctx, 0, len(memory))
			return err
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

// A method returns when its context ends, whatever the kernel does, and does not touch the caller's
// memory afterwards.
func TestContextEndReturnsAtOnce(t *testing.T) {
	reason := errors.New("enough")
	each(t, func(t *testing.T, other *Engine, direct int) {
		e, s := scriptedEngine(t, Options{Backend: other.Backend(), Threads: 4})
		s.holdResults()
		f := openIn(t, e, bytes.Repeat([]byte("x"), 2<<20), os.O_RDWR|direct)
		memory := alignedSlice(2*pageSize, pageSize)
		// Nothing completes, and no slot is free for plain calls.
		e.calls.fill()
		e.syncs.fill()
		for what, do := range contextMethods(f, memory) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(reason) })
			returns(t, what, func() {
				if err := do(ctx); !errors.Is(err, reason) {
					t.Errorf("%s: %v", what, err)
				}
			})
		}
		// What was held back completes now, and must not write to the caller's memory.
		want := bytes.Repeat([]byte("y"), len(memory))
		copy(memory, want)
		returns(t, "File.Close", func() {
			check(t, f.Close())
		})
		e.calls.drain()
		e.syncs.drain()
		s.release()
		closeAll(t, e)
		if !bytes.Equal(memory, want) {
			t.Error("memory of the caller was written")
		}
		eventually(t, "the descriptor is closed", func() bool { return !isOpen(f.fd) })
	})
}

// A context that has ended starts no operation.
func TestEndedContextStartsNothing(t *testing.T) {
	reason := errors.New("enough")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	for _, direct := range []int{0, Direct} {
		e, s := scriptedEngine(t, Options{})
		f := openIn(t, e, bytes.Repeat([]byte("x"), 2<<20), os.O_RDWR|direct)
		memory := alignedSlice(2*pageSize, pageSize)
		for what, do := range contextMethods(f, memory) {
			if err := do(ended); !errors.Is(err, reason) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := s.count.Load(); n != 0 {
			t.Errorf("%d operations were started", n)
		}
		if !bytes.Equal(memory, make([]byte, len(memory))) {
			t.Error("something was read")
		}
		got, err := os.ReadFile(f.Name())
		if err != nil || bytes.Count(got, []byte("x")) != len(got) {
			t.Error("something was written", err)
		}
	}
}

// A context that does not end changes no result.
func TestLiveContextChangesNoResult(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, o := range []Options{
		{Backend: BackendURing}, {Backend: BackendURing, AlwaysRing: true},
		{Backend: BackendKAIO}, {Backend: BackendThreads},
	} {
		for _, direct := range []int{0, Direct} {
			e := newOrSkip(t, o)
			liveContext(t, ctx, e, direct)
		}
	}
}

func liveContext(t *testing.T, ctx context.Context, e *Engine, direct int) {
	content := make([]byte, 9<<20+100)
	for i := range content {
		content[i] = byte(i >> 9)
	}
	f := openIn(t, e, content, os.O_RDWR|direct)
	for _, off := range []int{0, 3, 8 << 20} {
		p := make([]byte, len(content))
		n, err := f.ReadAtContext(ctx, p, int64(off))
		want := content[off:]
		if off == 0 && err != nil || off > 0 && err != io.EOF || !bytes.Equal(p[:n], want) {
			t.Errorf("%s: %d bytes at %d: %v", e.backend, n, off, err)
		}
	}
	p := bytes.Repeat([]byte("abcdefgh"), 9<<17)
	if n, err := f.WriteAtContext(ctx, p, 0); n != len(p) || err != nil {
		t.Errorf("%s: %d, %v", e.backend, n, err)
	}
	batch := []Transfer{
		{P: make([]byte, 5000), Off: 3},
		{P: make([]byte, 5000), Off: int64(len(content)) - 10},
		{P: nil},
		{P: make([]byte, 1), Off: -1},
	}
	err := f.ReadBatchContext(ctx, batch)
	if err == nil || batch[0].N != 5000 || !bytes.Equal(batch[0].P, p[3:5003]) ||
		batch[1].N != 10 || batch[1].Err != io.EOF || batch[3].Err == nil {
		t.Errorf("%s: %v, %d %v, %d %v, %v", e.backend, err, batch[0].N, batch[0].Err,
			batch[1].N, batch[1].Err, batch[3].Err)
	}
	writes := []Transfer{{P: p[:pageSize], Off: 1 << 20}, {P: p[4:][:pageSize], Off: 2 << 20}}
	if err := f.WriteBatchContext(ctx, writes, FullSync); err != nil || writes[1].N != pageSize {
		t.Errorf("%s: %v", e.backend, err)
	}
	q := make([]byte, pageSize)
	n, err := f.ReadAtContext(ctx, q, 2<<20)
	if n != len(q) || err != nil || !bytes.Equal(q, p[4:][:pageSize]) {
		t.Errorf("%s: %d, %v", e.backend, n, err)
	}
	check(t, f.SyncContext(ctx))
}

// A cause that is io.EOF is an error, and never the end of a file: a reader would take the part for
// the whole. A batch with it is not synced.
func TestCauseIsNeverTheEndOfTheFile(t *testing.T) {
	each(t, func(t *testing.T, other *Engine, direct int) {
		e, s := scriptedEngine(t, Options{Backend: other.Backend(), Threads: 4})
		f := openIn(t, e, bytes.Repeat([]byte("x"), 2<<20), os.O_RDWR|direct)
		memory := alignedSlice(2*pageSize, pageSize)
		check := func(what string, err error) {
			t.Helper()
			var path *os.PathError
			if err == nil || err == io.EOF || !errors.Is(err, io.EOF) || !errors.As(err, &path) ||
				path.Path != f.Name() || path.Err == io.EOF {
				t.Errorf("%s: %v (%T)", what, err, err)
			}
		}
		ended, cancel := context.WithCancelCause(t.Context())
		cancel(io.EOF)
		for what, do := range contextMethods(f, memory) {
			check(what+", ended", do(ended))
		}
		batch := []Transfer{{P: memory[:pageSize]}, {P: memory[pageSize:], Off: 1 << 20}}
		check("ReadBatchContext", f.ReadBatchContext(ended, batch))
		check("its first transfer", batch[0].Err)
		if n := s.count.Load(); n != 0 {
			t.Errorf("%d operations were started", n)
		}

		s.holdResults()
		e.calls.fill()
		e.syncs.fill()
		for what, do := range contextMethods(f, memory) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(20*time.Millisecond, func() { cancel(io.EOF) })
			returns(t, what, func() { check(what+", later", do(ctx)) })
		}
		e.calls.drain()
		e.syncs.drain()
		s.release()
	})
}

// The error of a context that ended is a timeout if the cause is one, as with package os.
func TestCauseIsTimeout(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendThreads})
	f := openIn(t, e, []byte("x"), os.O_RDWR)
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := f.ReadAtContext(ctx, make([]byte, 1), 0)
	if !os.IsTimeout(err) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := f.SyncContext(canceled); os.IsTimeout(err) || !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
