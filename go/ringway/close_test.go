//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Closing files and engines, and contexts that end, while the kernel or somebody else does not answer.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// never is how long a test waits for what should not take long. Whoever is late by that is not coming.
const never = 60 * time.Second

// returns waits for a function to return, and fails if it does not.
func returns(t *testing.T, what string, do func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		do()
	}()
	select {
	case <-done:
	case <-time.After(never):
		t.Fatal(what + " does not return")
	}
}

// scripted is a queue whose answers a test changes, holds back or swallows.
type scripted struct {
	queue
	mu     sync.Mutex
	shard  *shard
	pushed func(*request) (swallow bool)
	answer func(*request) (hold bool)
	held   []*request    // Until release.
	late   []*request    // Of those, what giveLate has answered.
	gate   chan struct{} // A submission waits for it, if it is there.
	count  atomic.Int64  // Operations.
}

func (s *scripted) push(r *request) {
	s.count.Add(int64(r.count()))
	s.mu.Lock()
	pushed := s.pushed
	s.mu.Unlock()
	if pushed != nil && pushed(r) {
		return
	}
	s.queue.push(r)
}

func (s *scripted) submit(light bool) bool {
	s.mu.Lock()
	gate := s.gate
	s.mu.Unlock()
	if gate != nil {
		<-gate
	}
	return s.queue.submit(light)
}

func (s *scripted) reap(done []*request) []*request {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.queue.reap(nil) {
		if s.answer != nil && s.answer(r) {
			s.held = append(s.held, r)
			continue
		}
		done = append(done, r)
	}
	if s.answer == nil {
		done = append(done, s.held...)
		s.held = nil
	}
	done = append(done, s.late...)
	s.late = nil
	return done
}

// giveLate answers some that were held back.
func (s *scripted) giveLate(all []*request) {
	s.mu.Lock()
	s.late = append(s.late, all...)
	s.mu.Unlock()
	s.wake()
}

// wake has somebody reap.
func (s *scripted) wake() {
	if s.shard == nil {
		return
	}
	s.shard.mu.Lock()
	s.shard.again = true
	s.shard.turn()
}

// release answers what was held back.
func (s *scripted) release() {
	s.mu.Lock()
	s.answer = nil
	s.mu.Unlock()
	s.wake()
}

// scriptedEngine has one ring or KAIO context, below a script, or none.
func scriptedEngine(t *testing.T, o Options) (*Engine, *scripted) {
	t.Helper()
	s := new(scripted)
	o.Rings, o.AlwaysRing = 1, true
	o.wrap = func(q queue) queue {
		s.queue = q
		return s
	}
	if o.Backend == "" {
		o.Backend = Uring
	}
	e, err := New(o)
	if err != nil {
		skip.Test(t, err)
	}
	if e.backend != Threads {
		s.shard = e.shards[0]
	}
	return e, s
}

func openIn(t *testing.T, e *Engine, content []byte, flag int) *File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := e.OpenFile(name, flag, 0)
	if err != nil {
		if flag&syscall.O_DIRECT != 0 && errors.Is(err, syscall.EINVAL) {
			skip.Test(t, "no direct I/O here")
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// A sync that failed, or a write that a sync covers, is an error: a second attempt would succeed, since Linux tells of a
// failure once, and the data would be lost. What the kernel says was not done goes once more.
func TestErrorsOfSyncs(t *testing.T) {
	for _, c := range []struct {
		kind  kind
		errno syscall.Errno
		again bool
	}{
		{fdatasync, syscall.EIO, false}, {fdatasync, syscall.ENOSPC, false}, {fdatasync, syscall.EDQUOT, false},
		{fdatasync, syscall.EINTR, true}, {fdatasync, syscall.EAGAIN, true}, {fdatasync, syscall.ECANCELED, true},
		{fsync, syscall.EIO, false}, {fsync, syscall.EINTR, true}, {fsync, syscall.ECANCELED, true},
		{write, syscall.EIO, false}, {write, syscall.ENOSPC, false}, {write, syscall.EINTR, true}, {write, syscall.ECANCELED, true},
		{writev, syscall.EIO, false}, {writev, syscall.ENOSPC, false}, {writev, syscall.EINTR, true}, {writev, syscall.EAGAIN, true},
	} {
		ways := map[kind][]string{ // By which there is such an operation.
			fdatasync: {"range", "scattered", "alone"}, fsync: {"range", "scattered", "alone", "pieces"},
			write: {"scattered", "alone", "pieces"}, writev: {"range"},
		}
		for _, how := range ways[c.kind] {
			t.Run(fmt.Sprint(c.kind.name(), " ", c.errno, " ", how), func(t *testing.T) {
				e, s := scriptedEngine(t, Options{})
				f := openIn(t, e, make([]byte, 8<<20), os.O_RDWR|syscall.O_DIRECT)
				seen, after := 0, 0
				s.mu.Lock()
				s.answer = func(r *request) bool {
					switch {
					case seen > 0 && !r.chained && (r.kind == fsync || r.kind == fdatasync):
						after++
					case r.kind == c.kind && seen == 0:
						seen++
						r.result = -int32(c.errno)
					}
					return false
				}
				s.mu.Unlock()
				var err error
				end := DataSync
				if c.kind == fsync {
					end = FullSync
				}
				batch := []Transfer{{P: alignedSlice(pageSize, pageSize)}, {P: alignedSlice(pageSize, pageSize), Off: pageSize}}
				switch how {
				case "scattered":
					batch[1].Off = 1 << 20
					err = f.WriteBatch(batch, end)
				case "range":
					err = f.WriteBatch(batch, end)
				case "pieces":
					_, err = f.WriteAt(alignedSlice(4<<20, pageSize), 0)
					err = errors.Join(err, f.Sync())
				case "alone":
					_, err = f.WriteAt(batch[0].P, 0)
					if end == DataSync {
						err = errors.Join(err, f.Datasync())
					} else {
						err = errors.Join(err, f.Sync())
					}
				}
				if seen == 0 {
					t.Fatal("there was no such operation")
				}
				if c.again && err != nil || !c.again && !errors.Is(err, c.errno) {
					t.Errorf("%v (and %d syncs after it)", err, after)
				}
				if how != "alone" && how != "pieces" && (c.kind == write || c.kind == writev) && !c.again {
					if after > 0 {
						t.Error("a sync after a write that failed")
					}
					if !errors.Is(first(batch), c.errno) {
						t.Error("none of the batch has the error")
					}
				}
				if err := errors.Join(f.Close(), e.Close()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func (k kind) name() string { return [...]string{"read", "write", "writev", "fsync", "fdatasync"}[k] }

// A buffered range that fails is an error too, for all that was not written, and nothing is synced.
func TestErrorOfRange(t *testing.T) {
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f := openIn(t, e, make([]byte, 10), os.O_RDONLY)
	batch := []Transfer{{P: make([]byte, 10)}, {P: make([]byte, 10), Off: 10}}
	if err := f.WriteBatch(batch, DataSync); !errors.Is(err, syscall.EBADF) || !errors.Is(batch[1].Err, syscall.EBADF) {
		t.Error(err, batch)
	}
}

// What the kernel never answers is told at the bound, of one engine and not of each shard; files close, and the memory is
// nobody's any more.
func TestCloseOfWhatNeverAnswers(t *testing.T) {
	for _, backend := range []Backend{Uring, KAIO} {
		t.Run(string(backend), func(t *testing.T) {
			e, err := New(Options{Backend: backend, Rings: 4, AlwaysRing: true, closeWait: 200 * time.Millisecond, FixedBuffers: 1 << 20,
				wrap: func(q queue) queue {
					return &scripted{queue: q, pushed: func(*request) bool { return true }}
				}})
			if err != nil {
				skip.Test(t, err)
			}
			direct := openIn(t, e, make([]byte, 8<<20), os.O_RDWR|syscall.O_DIRECT)
			var answers sync.Map
			var wg sync.WaitGroup
			begin := func(what string, do func() error) {
				wg.Go(func() { answers.Store(what, do()) })
			}
			lent := e.NewBuffer(pageSize)
			at := &lent.Bytes()[0]
			begin("ReadAt", func() error { _, err := direct.ReadAt(lent.Bytes(), 0); return err })
			begin("ReadAt of pieces", func() error { _, err := direct.ReadAt(make([]byte, 4<<20), 0); return err })
			begin("ReadAt around", func() error { _, err := direct.ReadAt(make([]byte, 100), 7); return err })
			begin("WriteAt", func() error { _, err := direct.WriteAt(alignedSlice(pageSize, pageSize), 0); return err })
			begin("Read", func() error { _, err := direct.Read(make([]byte, 100)); return err })
			begin("Sync", direct.Sync)
			begin("ReadBuf", func() error { _, err := direct.ReadBuf(t.Context(), 0, 100); return err })
			begin("ReadAtContext", func() error { _, err := direct.ReadAtContext(t.Context(), make([]byte, 9), 0); return err })
			page := func() []byte { return alignedSlice(pageSize, pageSize) }
			begin("ReadBatch", func() error { return direct.ReadBatch([]Transfer{{P: page()}, {P: page(), Off: 1 << 20}}) })
			begin("WriteBatch", func() error { return direct.WriteBatch([]Transfer{{P: page()}, {P: page(), Off: pageSize}}, DataSync) })
			// 10 functions, and pieces and batches are more; those of them that wait for room, and syncs that KAIO refuses, are no matter.
			for deadline := time.Now().Add(never); e.Stats().Pushed < 12 && time.Now().Before(deadline); {
				time.Sleep(time.Millisecond)
			}
			returns(t, "Engine.Close", func() {
				if err := e.Close(); err == nil {
					t.Error("no error, with operations in flight")
				}
			})
			returns(t, "an operation", wg.Wait)
			lost := 0
			answers.Range(func(what, answer any) bool {
				err, _ := answer.(error)
				if !errors.Is(err, ErrEngineClosed) {
					t.Errorf("%s: %v", what, err)
				}
				if errors.Is(err, ErrAbandoned) {
					lost++
				}
				return true
			})
			if lost < 5 {
				t.Errorf("only %d operations were with the kernel", lost)
			}
			fd := direct.fd
			returns(t, "File.Close", func() {
				if err := direct.Close(); err != nil {
					t.Error(err)
				}
			})
			if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_GETFD, 0); errno != 0 {
				t.Error("the descriptor is free, and the kernel may still be given it: ", errno)
			}
			lent.Release()
			for range 300 {
				if again := e.NewBuffer(pageSize); &again.Bytes()[0] == at {
					t.Fatal("memory that the kernel has is lent again")
				}
			}
			if s := e.Stats(); s.InFlight != 0 || s.Waiting != 0 || s.Pushed != s.Delivered {
				t.Errorf("%+v", s)
			}
		})
	}
}

// What the kernel can cancel is cancelled before the bound, and then nothing is lost.
func TestCloseCancels(t *testing.T) {
	e, err := New(Options{Backend: Uring, Rings: 2, AlwaysRing: true, closeWait: 2 * time.Second})
	if err != nil {
		skip.Test(t, err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	f, err := e.NewFile(r)
	if err != nil {
		t.Fatal(err)
	}
	f.storage = true // So that the ring has its reads.
	const readers = 20
	answers := make(chan error, readers)
	for range readers {
		go func() {
			_, err := f.engine.fly(always, f.engine.shard(), f.request(read, make([]byte, 10), atCursor))
			answers <- err
		}()
	}
	for s := e.Stats(); s.InFlight+s.Waiting < readers; s = e.Stats() {
		time.Sleep(time.Millisecond)
	}
	returns(t, "Engine.Close", func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	for range readers {
		returns(t, "a reader", func() {
			if err := <-answers; !errors.Is(err, ErrEngineClosed) || errors.Is(err, ErrAbandoned) {
				t.Error(err)
			}
		})
	}
	returns(t, "File.Close", func() { _ = f.Close() })
}

// Somebody in the turnstile who does not come back from the kernel keeps nobody else; and comes back, later, to nothing.
func TestCloseBesideStuckSubmission(t *testing.T) {
	e, s := scriptedEngine(t, Options{closeWait: 200 * time.Millisecond})
	f := openIn(t, e, make([]byte, 1<<20), os.O_RDONLY)
	gate := make(chan struct{})
	s.mu.Lock()
	s.gate = gate
	s.mu.Unlock()
	stuck := make(chan error, 1)
	go func() {
		_, err := f.ReadAt(make([]byte, 10), 0)
		stuck <- err
	}()
	for e.Stats().InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	other := make(chan error, 1)
	go func() {
		_, err := f.ReadAt(make([]byte, 10), 0)
		other <- err
	}()
	for e.Stats().Waiting == 0 {
		time.Sleep(time.Millisecond)
	}
	returns(t, "Engine.Close", func() { _ = e.Close() })
	returns(t, "the other", func() {
		if err := <-other; !errors.Is(err, ErrEngineClosed) {
			t.Error(err)
		}
	})
	returns(t, "File.Close", func() { _ = f.Close() })
	close(gate)
	returns(t, "who was stuck", func() {
		if err := <-stuck; !errors.Is(err, ErrAbandoned) {
			t.Error(err)
		}
	})
}

// Whoever waits for a place among the blocking calls is told when the engine ends.
func TestCloseTellsThoseWithoutPlace(t *testing.T) {
	e, err := New(Options{Backend: Threads, Threads: 4})
	if err != nil {
		t.Fatal(err)
	}
	f := openIn(t, e, make([]byte, 100), os.O_RDWR)
	e.calls.fill()
	e.syncs.fill()
	all := map[string]func() error{
		"WriteAt":     func() error { _, err := f.WriteAt(make([]byte, 10), 0); return err },
		"Sync":        f.Sync,
		"Preallocate": func() error { return f.Preallocate(0, 10) },
		"WriteBatch":  func() error { return f.WriteBatch([]Transfer{{P: make([]byte, 10)}}, FullSync) },
	}
	answers := make(chan error, len(all))
	for what, do := range all {
		go func() {
			if err := do(); !errors.Is(err, ErrEngineClosed) {
				answers <- fmt.Errorf("%s: %v", what, err)
			}
			answers <- nil
		}()
	}
	time.Sleep(20 * time.Millisecond)
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	for range all {
		returns(t, "an operation", func() {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		})
	}
}

// blockingPipe is one that Go's poller does not know.
func blockingPipe(t *testing.T, e *Engine) (*File, *os.File) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	f, err := e.NewFile(os.NewFile(uintptr(fds[0]), "reading"))
	if err != nil {
		t.Fatal(err)
	}
	w := os.NewFile(uintptr(fds[1]), "writing")
	t.Cleanup(func() { w.Close() })
	return f, w
}

// Close waits for nobody's reader, writer or pipe.
func TestCloseOfFile(t *testing.T) {
	for _, backend := range []Backend{Uring, KAIO, Threads} {
		for _, direct := range []int{0, syscall.O_DIRECT} {
			e, err := New(Options{Backend: backend})
			if err != nil {
				skip.Test(t, err)
			}
			name := fmt.Sprint(backend, " ", direct != 0, ": ")
			content := bytes.Repeat([]byte("x"), 8<<20)
			// Copying from what gives nothing: the copy ends at its next step.
			f := openIn(t, e, content, os.O_RDWR|direct)
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			copied := make(chan error, 1)
			go func() {
				_, err := io.Copy(f, r)
				copied <- err
			}()
			time.Sleep(10 * time.Millisecond)
			returns(t, name+"Close beside ReadFrom", func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				t.Fatal(err)
			}
			w.Close()
			returns(t, name+"ReadFrom", func() {
				if err := <-copied; !errors.Is(err, os.ErrClosed) {
					t.Error(name, "ReadFrom: ", err)
				}
			})
			r.Close()

			// Copying to what takes nothing.
			f = openIn(t, e, content, os.O_RDONLY|direct)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				_, err := f.WriteTo(c)
				copied <- err
			}()
			time.Sleep(50 * time.Millisecond)
			returns(t, name+"Close beside WriteTo", func() {
				if err := f.Close(); err != nil {
					t.Error(err)
				}
			})
			c.Close()
			returns(t, name+"WriteTo", func() {
				if err := <-copied; err == nil {
					t.Error(name, "WriteTo: no error")
				}
			})
			l.Close()

			// A pipe that blocks: the reader stays in its system call, as with package os.
			p, writer := blockingPipe(t, e)
			read := make(chan error, 1)
			go func() {
				_, err := p.Read(make([]byte, 10))
				read <- err
			}()
			time.Sleep(10 * time.Millisecond)
			returns(t, name+"Close beside a read of a blocking pipe", func() {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
			if _, err := p.Read(make([]byte, 10)); !errors.Is(err, os.ErrClosed) {
				t.Error(name, err)
			}
			if _, err := writer.Write([]byte("x")); err != nil {
				t.Fatal(name, "the descriptor was closed under its reader: ", err)
			}
			returns(t, name+"Read", func() {
				if err := <-read; err != nil {
					t.Error(name, err)
				}
			})
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A descriptor is closed by the last operation in it, and only then.
func TestDescriptorStays(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	f := openIn(t, e, bytes.Repeat([]byte("x"), 100), os.O_RDONLY)
	s.mu.Lock()
	s.answer = func(*request) bool { return true }
	s.mu.Unlock()
	open := func() bool {
		_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(f.fd), syscall.F_GETFD, 0)
		return errno == 0
	}
	answer := make(chan error, 1)
	go func() {
		p := make([]byte, 10)
		n, err := f.ReadAt(p, 0)
		if err == nil && (n != 10 || p[9] != 'x') {
			err = fmt.Errorf("%d bytes: %q", n, p)
		}
		answer <- err
	}()
	for e.Stats().InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if !open() {
		t.Fatal("closed under a read")
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
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
	if open() {
		t.Error("nobody closed it")
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// contextual are the functions with a context, each of some bytes of a file.
func contextual(f *File, memory []byte) map[string]func(context.Context) error {
	half := len(memory) / 2
	return map[string]func(context.Context) error{
		"ReadAtContext":  func(ctx context.Context) error { _, err := f.ReadAtContext(ctx, memory, 0); return err },
		"WriteAtContext": func(ctx context.Context) error { _, err := f.WriteAtContext(ctx, memory, 0); return err },
		"SyncContext":    f.SyncContext,
		"ReadBuf":        func(ctx context.Context) error { _, err := f.ReadBuf(ctx, 0, len(memory)); return err },
		"ReadBatchContext": func(ctx context.Context) error {
			return f.ReadBatchContext(ctx, []Transfer{{P: memory[:half]}, {P: memory[half:], Off: int64(half)}})
		},
		"WriteBatchContext": func(ctx context.Context) error {
			return f.WriteBatchContext(ctx, []Transfer{{P: memory[:half]}, {P: memory[half:], Off: int64(half)}}, DataSync)
		},
		"WriteBatchContext, scattered": func(ctx context.Context) error {
			return f.WriteBatchContext(ctx, []Transfer{{P: memory[:half]}, {P: memory[half:], Off: 1 << 20}}, NoSync)
		},
	}
}

// A context that ends is an end, whatever the kernel does: with the memory given to the function, it is done.
func TestContextsEnd(t *testing.T) {
	reason := errors.New("enough")
	for _, backend := range []Backend{Uring, KAIO, Threads} {
		for _, direct := range []int{0, syscall.O_DIRECT} {
			t.Run(fmt.Sprint(backend, " direct ", direct != 0), func(t *testing.T) {
				var queues []*scripted
				e, err := New(Options{Backend: backend, Rings: 1, Threads: 4, AlwaysRing: true, wrap: func(q queue) queue {
					queues = append(queues, &scripted{queue: q, answer: func(*request) bool { return true }})
					return queues[len(queues)-1]
				}})
				if err != nil {
					skip.Test(t, err)
				}
				for i, s := range queues {
					s.shard = e.shards[i]
				}
				content := bytes.Repeat([]byte("x"), 2<<20)
				f := openIn(t, e, content, os.O_RDWR|direct)
				memory := alignedSlice(2*pageSize, pageSize)
				// Nothing is answered, and there is no place among the plain calls.
				e.calls.fill()
				e.syncs.fill()
				for what, do := range contextual(f, memory) {
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(20*time.Millisecond, func() { cancel(reason) })
					returns(t, what, func() {
						if err := do(ctx); !errors.Is(err, reason) {
							t.Errorf("%s: %v", what, err)
						}
					})
				}
				// It is the caller's again: what was held back is answered now, and nobody writes there.
				copy(memory, bytes.Repeat([]byte("y"), len(memory)))
				returns(t, "File.Close", func() {
					if err := f.Close(); err != nil {
						t.Error(err)
					}
				})
				e.calls.drain()
				e.syncs.drain()
				for _, s := range queues {
					s.release()
				}
				returns(t, "Engine.Close", func() {
					if err := e.Close(); err != nil {
						t.Error(err)
					}
				})
				if !bytes.Equal(memory, bytes.Repeat([]byte("y"), len(memory))) {
					t.Error("somebody wrote to memory of the caller's")
				}
				for deadline := time.Now().Add(never); ; time.Sleep(time.Millisecond) {
					if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(f.fd), syscall.F_GETFD, 0); errno != 0 {
						break
					}
					if time.Now().After(deadline) {
						t.Fatal("nobody closed the descriptor")
					}
				}
			})
		}
	}
}

// A context that has ended before begins nothing.
func TestContextsEnded(t *testing.T) {
	reason := errors.New("enough")
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(reason)
	for _, direct := range []int{0, syscall.O_DIRECT} {
		e, s := scriptedEngine(t, Options{})
		f := openIn(t, e, bytes.Repeat([]byte("x"), 2<<20), os.O_RDWR|direct)
		memory := alignedSlice(2*pageSize, pageSize)
		for what, do := range contextual(f, memory) {
			if err := do(ended); !errors.Is(err, reason) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if n := s.count.Load(); n != 0 {
			t.Errorf("%d operations were begun", n)
		}
		if !bytes.Equal(memory, make([]byte, len(memory))) {
			t.Error("something was read")
		}
		if got, err := os.ReadFile(f.Name()); err != nil || bytes.Count(got, []byte("x")) != len(got) {
			t.Error("something was written", err)
		}
		if err := errors.Join(f.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	}
}

// With a context that does not end in time, the answers are those without one.
func TestContextsLast(t *testing.T) {
	content := make([]byte, 9<<20+100)
	for i := range content {
		content[i] = byte(i >> 9)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, o := range []Options{{Backend: Uring}, {Backend: Uring, AlwaysRing: true}, {Backend: KAIO}, {Backend: Threads}} {
		for _, direct := range []int{0, syscall.O_DIRECT} {
			e, err := New(o)
			if err != nil {
				skip.Test(t, err)
			}
			f := openIn(t, e, content, os.O_RDWR|direct)
			for _, off := range []int{0, 3, 8 << 20} {
				p := make([]byte, len(content))
				n, err := f.ReadAtContext(ctx, p, int64(off))
				want := content[off:]
				if off == 0 && err != nil || off > 0 && err != io.EOF || !bytes.Equal(p[:n], want) {
					t.Errorf("%v: %d bytes at %d: %v", o, n, off, err)
				}
			}
			p := bytes.Repeat([]byte("abcdefgh"), 9<<17)
			if n, err := f.WriteAtContext(ctx, p, 0); n != len(p) || err != nil {
				t.Errorf("%v: %d, %v", o, n, err)
			}
			batch := []Transfer{{P: make([]byte, 5000), Off: 3}, {P: make([]byte, 5000), Off: int64(len(content)) - 10}, {P: nil}, {P: make([]byte, 1), Off: -1}}
			err = f.ReadBatchContext(ctx, batch)
			if err == nil || batch[0].N != 5000 || !bytes.Equal(batch[0].P, p[3:5003]) || batch[1].N != 10 || batch[1].Err != io.EOF || batch[3].Err == nil {
				t.Errorf("%v: %v, %d %v, %d %v, %v", o, err, batch[0].N, batch[0].Err, batch[1].N, batch[1].Err, batch[3].Err)
			}
			writes := []Transfer{{P: p[:pageSize], Off: 1 << 20}, {P: p[4:][:pageSize], Off: 2 << 20}}
			if err := f.WriteBatchContext(ctx, writes, FullSync); err != nil || writes[1].N != pageSize {
				t.Errorf("%v: %v", o, err)
			}
			q := make([]byte, pageSize)
			if n, err := f.ReadAtContext(ctx, q, 2<<20); n != len(q) || err != nil || !bytes.Equal(q, p[4:][:pageSize]) {
				t.Errorf("%v: %d, %v", o, n, err)
			}
			if err := errors.Join(f.SyncContext(ctx), f.Close(), e.Close()); err != nil {
				t.Error(err)
			}
		}
	}
}

// A batch whose file is closed in the middle is done as a whole; after that, not at all.
func TestBatchAcrossClose(t *testing.T) {
	for _, kind := range []kind{read, write} {
		e, s := scriptedEngine(t, Options{})
		f := openIn(t, e, make([]byte, 1<<20), os.O_RDWR|syscall.O_DIRECT)
		closed := make(chan error, 1)
		var once sync.Once
		s.mu.Lock()
		s.pushed = func(*request) bool {
			once.Do(func() {
				go func() { closed <- f.Close() }()
				for f.hold.users.Load() >= 0 {
					time.Sleep(100 * time.Microsecond)
				}
			})
			return false
		}
		s.mu.Unlock()
		var batch []Transfer
		for i := range 20 { // Some go together, and some one by one.
			batch = append(batch, Transfer{P: alignedSlice(pageSize+i%2*100, pageSize), Off: int64(i * 8192)})
			if kind == write {
				batch[i].P = append([]byte{0}, make([]byte, pageSize)...)[1:]
			}
		}
		do := func() error {
			if kind == read {
				return f.ReadBatch(batch)
			}
			return f.WriteBatch(batch, FullSync)
		}
		if err := do(); err != nil {
			t.Errorf("%s: %v", kind.name(), err)
		}
		for i := range batch {
			if batch[i].N != len(batch[i].P) || batch[i].Err != nil {
				t.Errorf("%s, %d: %d of %d, %v", kind.name(), i, batch[i].N, len(batch[i].P), batch[i].Err)
			}
		}
		returns(t, "Close", func() {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		})
		if err := do(); !errors.Is(err, os.ErrClosed) || batch[0].N != len(batch[0].P) {
			t.Error(err, batch[0].N)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
