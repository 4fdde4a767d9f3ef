//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Closing files and engines while the kernel, or somebody else, does not answer.

package ringway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// Operations that the kernel never completes fail at the limit of Close, which holds for the whole
// engine, not for each shard. Files close, and the memory of the operations is never reused.
func TestCloseAbandonsOperations(t *testing.T) {
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		t.Run(string(backend), func(t *testing.T) { closeAbandons(t, backend) })
	}
}

func closeAbandons(t *testing.T, backend Backend) {
	e := newOrSkip(t, Options{
		Backend: backend, Rings: 4, AlwaysRing: true, closeWait: 200 * time.Millisecond,
		FixedBuffers: 1 << 20,
		wrap: func(q queue) queue {
			return &scripted{queue: q, pushed: func(*request) bool { return true }}
		},
	})
	direct := openIn(t, e, make([]byte, 8<<20), os.O_RDWR|Direct)
	page := func() []byte { return alignedSlice(pageSize, pageSize) }
	batch := func(second int64) []Transfer {
		return []Transfer{{P: page()}, {P: page(), Off: second}}
	}
	pooled := e.NewBuffer(pageSize)
	at := &pooled.Bytes()[0]
	var results sync.Map
	var wg sync.WaitGroup
	// This one is certainly pushed before Close.
	wg.Go(func() { results.Store("ReadAt", errorOf(direct.ReadAt(pooled.Bytes(), 0))) })
	eventually(t, "the read is pushed", func() bool { return e.Stats().Pushed >= 1 })
	for what, do := range map[string]func() error{
		"ReadAt, split":    func() error { return errorOf(direct.ReadAt(make([]byte, 4<<20), 0)) },
		"ReadAt, enclosed": func() error { return errorOf(direct.ReadAt(make([]byte, 100), 7)) },
		"WriteAt":          func() error { return errorOf(direct.WriteAt(page(), 0)) },
		"Read":             func() error { return errorOf(direct.Read(make([]byte, 100))) },
		"Sync":             direct.Sync,
		"ReadBuf":          func() error { return errorOf(direct.ReadBuf(t.Context(), 0, 100)) },
		"ReadAtContext": func() error {
			return errorOf(direct.ReadAtContext(t.Context(), make([]byte, 9), 0))
		},
		"ReadBatch":  func() error { return direct.ReadBatch(batch(1 << 20)) },
		"WriteBatch": func() error { return direct.WriteBatch(batch(pageSize), DataSync) },
	} {
		wg.Go(func() { results.Store(what, do()) })
	}
	// The ten calls are at least twelve operations. Some of those wait for capacity, one of the
	// syncs waits for the other, and Linux AIO refuses syncs.
	eventually(t, "the operations are pushed", func() bool { return e.Stats().Pushed >= 11 })
	returns(t, "Engine.Close", func() {
		if err := e.Close(); err == nil {
			t.Error("Close returns no error, with operations in flight")
		}
	})
	returns(t, "an operation", wg.Wait)
	count := 0
	results.Range(func(what, result any) bool {
		err, _ := result.(error)
		if !errors.Is(err, ErrEngineClosed) {
			t.Errorf("%s: %v", what, err)
		}
		if errors.Is(err, ErrAbandoned) {
			count++
		}
		return true
	})
	if count < 5 {
		t.Errorf("only %d operations were abandoned", count)
	}
	fd := direct.fd
	returns(t, "File.Close", func() {
		check(t, direct.Close())
	})
	if !isOpen(fd) {
		t.Error("the descriptor is closed, and an abandoned request may still use it")
	}
	pooled.Release()
	for range 300 {
		if again := e.NewBuffer(pageSize); &again.Bytes()[0] == at {
			t.Fatal("memory that the kernel may use is reused")
		}
	}
	if s := e.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pushed != s.Delivered {
		t.Errorf("%+v", s)
	}
}

// Operations that the kernel can cancel are canceled before the limit of Close, and nothing leaks.
func TestCloseCancelsOperations(t *testing.T) {
	e := newOrSkip(t, Options{
		Backend: BackendURing, Rings: 2, AlwaysRing: true, closeWait: 2 * time.Second,
	})
	r, w, err := os.Pipe()
	must(t, err)
	defer w.Close()
	f, err := e.NewFile(r)
	must(t, err)
	f.storage = true // So that its reads go to a ring.
	const readers = 20
	results := make(chan error, readers)
	for range readers {
		go func() {
			r := f.request(opRead, make([]byte, 10), atCurrent)
			_, err := e.do(background, e.shard(), r)
			results <- err
		}()
	}
	eventually(t, "the reads are submitted", func() bool {
		s := e.Stats()
		return s.InFlight+s.Waiting == readers
	})
	closeAll(t, e)
	for range readers {
		returns(t, "a reader", func() {
			if err := <-results; !errors.Is(err, ErrEngineClosed) || errors.Is(err, ErrAbandoned) {
				t.Error(err)
			}
		})
	}
	returns(t, "File.Close", func() { _ = f.Close() })
}

// A combiner that hangs in the kernel delays nobody when the engine is closed. When it returns
// later, its own operation has failed.
func TestCloseDuringHungSubmission(t *testing.T) {
	e, s := scriptedEngine(t, Options{closeWait: 200 * time.Millisecond})
	f := openIn(t, e, make([]byte, 1<<20), os.O_RDONLY)
	gate := make(chan struct{})
	s.setGate(gate)
	hung, other := make(chan error, 1), make(chan error, 1)
	go func() { hung <- errorOf(f.ReadAt(make([]byte, 10), 0)) }()
	eventually(t, "a read is submitted", func() bool { return e.Stats().InFlight > 0 })
	go func() { other <- errorOf(f.ReadAt(make([]byte, 10), 0)) }()
	eventually(t, "another read waits", func() bool { return e.Stats().Waiting > 0 })
	returns(t, "Engine.Close", func() { _ = e.Close() })
	returns(t, "the other read", func() {
		if err := <-other; !errors.Is(err, ErrEngineClosed) {
			t.Error(err)
		}
	})
	returns(t, "File.Close", func() { _ = f.Close() })
	close(gate)
	returns(t, "the combiner's read", func() {
		if err := <-hung; !errors.Is(err, ErrAbandoned) {
			t.Error(err)
		}
	})
}

// Calls that wait for a slot among the blocking calls fail when the engine is closed.
func TestCloseFailsCallsWithoutSlot(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendThreads, Threads: 4})
	f := openIn(t, e, make([]byte, 100), os.O_RDWR)
	e.calls.fill()
	e.syncs.fill()
	all := map[string]func() error{
		"WriteAt":     func() error { return errorOf(f.WriteAt(make([]byte, 10), 0)) },
		"Sync":        f.Sync,
		"Preallocate": func() error { return f.Preallocate(0, 10) },
		"WriteBatch": func() error {
			return f.WriteBatch([]Transfer{{P: make([]byte, 10)}}, FullSync)
		},
	}
	results := make(chan error, len(all))
	for what, do := range all {
		go func() {
			if err := do(); !errors.Is(err, ErrEngineClosed) {
				results <- fmt.Errorf("%s: %v", what, err)
			}
			results <- nil
		}()
	}
	time.Sleep(20 * time.Millisecond)
	closeAll(t, e)
	for range all {
		returns(t, "an operation", func() {
			check(t, <-results)
		})
	}
}

// File.Close does not wait for readers, writers or pipes.
func TestFileCloseDoesNotWait(t *testing.T) {
	for _, backend := range []Backend{BackendURing, BackendKAIO, BackendThreads} {
		for _, direct := range []int{0, Direct} {
			t.Run(fmt.Sprint(backend, " direct ", direct != 0), func(t *testing.T) {
				e := newOrSkip(t, Options{Backend: backend})
				closeDuringReadFrom(t, e, direct)
				closeDuringWriteTo(t, e, direct)
				closeDuringPipeRead(t, e)
			})
		}
	}
}

// closeFile closes a file, which must not take long.
func closeFile(t *testing.T, f *File) {
	t.Helper()
	returns(t, "File.Close", func() {
		check(t, f.Close())
	})
}

// A copy from a source that has no data fails at its next step.
func closeDuringReadFrom(t *testing.T, e *Engine, direct int) {
	f := openIn(t, e, bytes.Repeat([]byte("x"), 8<<20), os.O_RDWR|direct)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	copied := make(chan error, 1)
	go func() {
		_, err := io.Copy(f, r)
		copied <- err
	}()
	time.Sleep(10 * time.Millisecond)
	closeFile(t, f)
	if _, err := w.Write(make([]byte, 4096)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	returns(t, "ReadFrom", func() {
		if err := <-copied; !errors.Is(err, os.ErrClosed) {
			t.Error("ReadFrom: ", err)
		}
	})
}

// A copy to a destination that accepts no data fails when the destination is closed.
func closeDuringWriteTo(t *testing.T, e *Engine, direct int) {
	f := openIn(t, e, bytes.Repeat([]byte("x"), 8<<20), os.O_RDONLY|direct)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	copied := make(chan error, 1)
	go func() {
		_, err := f.WriteTo(c)
		copied <- err
	}()
	time.Sleep(50 * time.Millisecond)
	closeFile(t, f)
	c.Close()
	returns(t, "WriteTo", func() {
		if err := <-copied; err == nil {
			t.Error("WriteTo: no error")
		}
	})
}

// A reader of a pipe that blocks stays in its system call, as with package os.
func closeDuringPipeRead(t *testing.T, e *Engine) {
	p, writer := blockingPipe(t, e)
	read := make(chan error, 1)
	go func() { read <- errorOf(p.Read(make([]byte, 10))) }()
	time.Sleep(10 * time.Millisecond)
	closeFile(t, p)
	if _, err := p.Read(make([]byte, 10)); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if _, err := writer.Write([]byte("x")); err != nil {
		t.Fatal("the descriptor was closed while a read used it: ", err)
	}
	returns(t, "Read", func() {
		check(t, <-read)
	})
}

// The last operation on a file closes its descriptor, and not before.
func TestLastOperationClosesDescriptor(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	f := openIn(t, e, bytes.Repeat([]byte("x"), 100), os.O_RDONLY)
	s.holdResults()
	result := make(chan error, 1)
	go func() {
		p := make([]byte, 10)
		n, err := f.ReadAt(p, 0)
		if err == nil && (n != 10 || p[9] != 'x') {
			err = fmt.Errorf("%d bytes: %q", n, p)
		}
		result <- err
	}()
	eventually(t, "a read is submitted", func() bool { return e.Stats().InFlight > 0 })
	must(t, f.Close())
	if !isOpen(f.fd) {
		t.Fatal("the descriptor was closed during a read")
	}
	if _, err := f.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if _, err := f.SyscallConn(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if f.Fd() != ^uintptr(0) {
		t.Error(f.Fd())
	}
	if err := f.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	s.release()
	returns(t, "the read", func() {
		check(t, <-result)
	})
	if isOpen(f.fd) {
		t.Error("the descriptor is still open")
	}
}

// If a file is closed during a batch, the whole batch is done. A batch after that fails.
func TestBatchCompletesAcrossClose(t *testing.T) {
	for _, op := range []opcode{opRead, opWrite} {
		t.Run(opcodeName(op), func(t *testing.T) { batchAcrossClose(t, op) })
	}
}

func batchAcrossClose(t *testing.T, op opcode) {
	e, s := scriptedEngine(t, Options{})
	f := openIn(t, e, make([]byte, 1<<20), os.O_RDWR|Direct)
	closed := make(chan error, 1)
	var once sync.Once
	s.onPush(func(*request) bool {
		once.Do(func() {
			go func() { closed <- f.Close() }()
			for !f.refs.closed() {
				time.Sleep(100 * time.Microsecond)
			}
		})
		return false
	})
	var batch []Transfer
	for i := range 20 { // Some are submitted together, and some one by one.
		p := alignedSlice(pageSize+i%2*100, pageSize)
		if op == opWrite {
			p = append([]byte{0}, make([]byte, pageSize)...)[1:]
		}
		batch = append(batch, Transfer{P: p, Off: int64(i * 8192)})
	}
	do := func() error {
		if op == opRead {
			return f.ReadBatch(batch)
		}
		return f.WriteBatch(batch, FullSync)
	}
	check(t, do())
	for i := range batch {
		if batch[i].N != len(batch[i].P) || batch[i].Err != nil {
			t.Errorf("%d: %d of %d, %v", i, batch[i].N, len(batch[i].P), batch[i].Err)
		}
	}
	returns(t, "Close", func() {
		check(t, <-closed)
	})
	if err := do(); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if first := batch[0]; first.N != 0 || !errors.Is(first.Err, os.ErrClosed) {
		t.Error(first.N, first.Err)
	}
}

// A copy into a file ends when the file is closed, also while another operation keeps its
// descriptor open.
func TestCloseEndsCopies(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	f := openIn(t, e, make([]byte, pageSize), os.O_RDWR)
	s.holdResults()
	var hung sync.WaitGroup
	hung.Go(func() { _, _ = f.ReadAt(make([]byte, 10), 0) })
	eventually(t, "a read is submitted", func() bool { return e.Stats().InFlight > 0 })
	from, to := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		_, err := f.ReadFrom(bufio.NewReader(from))
		copied <- err
	}()
	if _, err := to.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	must(t, f.Close())
	go func() { _, _ = to.Write([]byte("second")) }()
	returns(t, "the copy", func() {
		if err := <-copied; !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	_ = to.Close()
	s.release()
	returns(t, "the read", hung.Wait)
	got, err := os.ReadFile(f.Name())
	if err != nil || bytes.Contains(got, []byte("second")) {
		t.Error("data was written after Close", err)
	}
}
