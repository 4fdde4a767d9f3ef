//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Closing files and engines while the kernel, or somebody else, does not answer.

package ringway

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"testing"
	"time"
)

// submitted waits until a queue has an operation.
func submitted(t *testing.T, e *Engine) {
	t.Helper()
	eventually(t, "an operation is submitted", func() bool { return e.Stats().InFlight > 0 })
}

// Operations that the kernel never completes fail at the limit of Close, which holds for the whole
// engine, not for each shard. Files close, and the memory of the operations is never reused.
func TestCloseAbandonsOperations(t *testing.T) {
	for _, backend := range queueBackends {
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
		"ReadBatch":  func() error { return direct.ReadBatch(pages(1 << 20)) },
		"WriteBatch": func() error { return direct.WriteBatch(pages(pageSize), DataSync) },
	} {
		wg.Go(func() { results.Store(what, do()) })
	}
	// The ten calls are at least twelve operations. Some of those wait for capacity, one of the
	// syncs waits for the other, and Linux AIO refuses syncs.
	eventually(t, "the operations are pushed", func() bool { return e.Stats().Pushed >= 11 })
	begin(t, "Engine.Close", e.Close)(errLeaked)
	returns(t, "an operation", wg.Wait)
	count := 0
	for what, result := range results.Range {
		err, _ := result.(error)
		wantError(t, what.(string), err, ErrEngineClosed)
		if errors.Is(err, ErrAbandoned) {
			count++
		}
	}
	expect(t, count >= 5, "only %d operations were abandoned", count)
	fd := direct.fd
	begin(t, "File.Close", direct.Close)(nil)
	expect(t, isOpen(fd), "the descriptor is closed, and an abandoned request may still use it")
	pooled.Release()
	for range 300 {
		again := e.NewBuffer(pageSize)
		require(t, &again.Bytes()[0] != at, "memory that the kernel may use is reused")
	}
}

// Operations that the kernel can cancel are canceled before the limit of Close, and nothing leaks.
func TestCloseCancelsOperations(t *testing.T) {
	e := newOrSkip(t, Options{
		Backend: BackendURing, Rings: 2, AlwaysRing: true, closeWait: 2 * time.Second,
	})
	f, _ := blockingPipe(t, e)
	f.storage = true // So that its reads go to a ring.
	var readers []func(error)
	for range 20 {
		readers = append(readers, begin(t, "a reader", func() error {
			_, err := e.do(background, e.shard(), f.request(opRead, make([]byte, 10), atCurrent))
			if errors.Is(err, ErrAbandoned) {
				return errors.New("abandoned")
			}
			return err
		}))
	}
	eventually(t, "the reads are submitted", func() bool {
		s := e.Stats()
		return s.InFlight+s.Waiting == len(readers)
	})
	closeAll(t, e)
	for _, end := range readers {
		end(ErrEngineClosed)
	}
	begin(t, "File.Close", f.Close)(nil)
}

// A combiner that hangs in the kernel delays nobody when the engine is closed. When it returns
// later, its own operation has failed.
func TestCloseDuringHungSubmission(t *testing.T) {
	e, s := scriptedEngine(t, Options{closeWait: 200 * time.Millisecond})
	f := openIn(t, e, make([]byte, 1<<20), os.O_RDONLY)
	gate := make(chan struct{})
	s.setGate(gate)
	read := func() error { return errorOf(f.ReadAt(make([]byte, 10), 0)) }
	hung := begin(t, "the combiner's read", read)
	submitted(t, e)
	other := begin(t, "the other read", read)
	eventually(t, "another read waits", func() bool { return e.Stats().Waiting > 0 })
	begin(t, "Engine.Close", e.Close)(errLeaked)
	other(ErrEngineClosed)
	begin(t, "File.Close", f.Close)(nil)
	close(gate)
	hung(ErrAbandoned)
}

// Calls that wait for a slot among the blocking calls fail when the engine is closed.
func TestCloseFailsCallsWithoutSlot(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendThreads, Threads: 4})
	f := openIn(t, e, make([]byte, 100), os.O_RDWR)
	e.fillLanes()
	var calls []func(error)
	for what, do := range map[string]func() error{
		"WriteAt":     func() error { return errorOf(f.WriteAt(make([]byte, 10), 0)) },
		"Sync":        f.Sync,
		"Preallocate": func() error { return f.Preallocate(0, 10) },
		"WriteBatch": func() error {
			return f.WriteBatch([]Transfer{{P: make([]byte, 10)}}, FullSync)
		},
	} {
		calls = append(calls, begin(t, what, do))
	}
	time.Sleep(20 * time.Millisecond)
	closeAll(t, e)
	for _, end := range calls {
		end(ErrEngineClosed)
	}
}

// A copy to a destination that accepts no data fails when the destination is closed, and the file
// closes meanwhile.
func TestFileCloseDoesNotWaitForWriteTo(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, make([]byte, 8<<20), os.O_RDONLY|direct)
		c, _ := sockets(t, "tcp")
		copied := make(chan error, 1)
		go func() { copied <- errorOf(f.WriteTo(c)) }()
		time.Sleep(50 * time.Millisecond)
		begin(t, "File.Close", f.Close)(nil)
		c.Close()
		returns(t, "WriteTo", func() { expect(t, <-copied != nil, "WriteTo: no error") })
	})
}

// A reader of a pipe that blocks stays in its system call, as with package os. One that waits in
// Go's poller returns.
func TestFileCloseDoesNotWaitForPipes(t *testing.T) {
	for _, backend := range testBackends {
		e := newOrSkip(t, Options{Backend: backend})
		polled, _ := pipe(t, e)
		waits := begin(t, "Read", func() error { return errorOf(polled.Read(make([]byte, 10))) })
		p, writer := blockingPipe(t, e)
		read := begin(t, "Read", func() error { return errorOf(p.Read(make([]byte, 10))) })
		eventually(t, "the read begins", func() bool { return p.refs.count.Load() > 0 })
		eventually(t, "the other read begins", func() bool { return polled.refs.count.Load() > 0 })
		must(t, polled.Close())
		waits(os.ErrClosed)
		begin(t, "File.Close", p.Close)(nil)
		wantError(t, "another Read", errorOf(p.Read(make([]byte, 10))), os.ErrClosed)
		_, err := writer.Write([]byte("x"))
		require(t, err == nil, "the descriptor was closed while a read used it: %v", err)
		read(nil)
	}
}

// The last operation on a file closes its descriptor, and not before.
func TestLastOperationClosesDescriptor(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	f := openIn(t, e, bytes.Repeat([]byte("x"), 100), os.O_RDONLY)
	s.holdResults()
	read := begin(t, "the read", func() error {
		p := make([]byte, 10)
		n, err := f.ReadAt(p, 0)
		if err == nil && (n != 10 || p[9] != 'x') {
			err = fmt.Errorf("%d bytes: %q", n, p)
		}
		return err
	})
	submitted(t, e)
	must(t, f.Close())
	require(t, isOpen(f.fd), "the descriptor was closed during a read")
	wantError(t, "Stat", errorOf(f.Stat()), os.ErrClosed)
	wantError(t, "SyscallConn", errorOf(f.SyscallConn()), os.ErrClosed)
	wantError(t, "Close", f.Close(), os.ErrClosed)
	expect(t, f.Fd() == ^uintptr(0), "%v", f.Fd())
	s.release()
	read(nil)
	expect(t, !isOpen(f.fd), "the descriptor is still open")
}

// If a file is closed during a batch, the whole batch is done. A batch after that fails.
func TestBatchCompletesAcrossClose(t *testing.T) {
	for _, op := range []opcode{opRead, opWrite} {
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
		allWritten(t, batch)
		returns(t, "Close", func() { check(t, <-closed) })
		wantError(t, opcodeName(op), do(), os.ErrClosed) // TestRefusedBatches has its transfers.
	}
}

// A copy into a file ends when the file is closed, also while another operation keeps its
// descriptor open.
func TestCloseEndsCopies(t *testing.T) {
	for _, direct := range []int{0, Direct} {
		e, s := scriptedEngine(t, Options{})
		f := openIn(t, e, make([]byte, pageSize), os.O_RDWR|direct)
		s.onResult(func(r *request) bool { return r.opcode == opRead })
		hung := begin(t, "the read", func() error { return errorOf(f.ReadAt(page(), 0)) })
		submitted(t, e)
		from, to := io.Pipe()
		copied := begin(t, "the copy", func() error {
			return errorOf(f.ReadFrom(bufio.NewReader(from)))
		})
		must(t, errorOf(to.Write(bytes.Repeat([]byte("1"), copyBuffer))))
		must(t, f.Close())
		go func() { _, _ = to.Write(bytes.Repeat([]byte("2"), copyBuffer)) }()
		copied(os.ErrClosed)
		_ = to.Close()
		s.release()
		hung(nil)
		expect(t, !bytes.Contains(content(t, f), []byte("2")), "data was written after Close")
	}
}
