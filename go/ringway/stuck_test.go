//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Operations that the kernel does not answer (a hung disk, a server that has gone) beside those on other files.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"
)

// However many reads of one file hang, those of another one are answered: one alone, several, and a batch.
func TestStuckTransfers(t *testing.T) {
	for _, backend := range []Backend{Uring, KAIO} {
		for _, stuck := range []int{1, 15, 16, 50, 500} {
			t.Run(fmt.Sprint(backend, ", ", stuck), func(t *testing.T) {
				e, s := scriptedEngine(t, Options{Backend: backend})
				content := bytes.Repeat([]byte("0123456789abcdef"), 4096)
				hung := openIn(t, e, content, os.O_RDONLY|syscall.O_DIRECT)
				fine := openIn(t, e, content, os.O_RDONLY|syscall.O_DIRECT)
				s.mu.Lock()
				var kept []*request
				s.pushed = func(r *request) bool { // The kernel has it, and nothing comes of it.
					if r.fd == hung.fd {
						kept = append(kept, r)
					}
					return r.fd == hung.fd
				}
				s.mu.Unlock()
				var all sync.WaitGroup
				for range stuck {
					all.Go(func() {
						p := alignedSlice(pageSize, pageSize)
						if n, err := hung.ReadAt(p, 0); n != len(p) || err != nil {
							t.Error(n, err)
						}
					})
				}
				for deadline := time.Now().Add(never); ; time.Sleep(time.Millisecond) {
					if stats := e.Stats(); stats.InFlight+stats.Waiting == stuck || stuck > 192 && stats.InFlight == 192 {
						break
					} else if time.Now().After(deadline) {
						t.Fatalf("%+v", stats)
					}
				}
				for range 3 {
					returns(t, "a read of another file", func() {
						p := alignedSlice(pageSize, pageSize)
						if n, err := fine.ReadAt(p, 0); n != len(p) || err != nil || !bytes.Equal(p, content[:n]) {
							t.Error(n, err)
						}
					})
				}
				returns(t, "a batch on another file", func() {
					batch := make([]Transfer, 8)
					for i := range batch {
						batch[i] = Transfer{P: alignedSlice(pageSize, pageSize), Off: int64(i) * pageSize}
					}
					if err := fine.ReadBatch(batch); err != nil {
						t.Error(err)
					}
				})
				s.mu.Lock()
				s.pushed = nil
				s.mu.Unlock()
				for _, r := range kept {
					r.result = -int32(syscall.EINTR)
				}
				s.giveLate(kept)
				returns(t, "a read that hung", all.Wait)
				_ = hung.Close()
				_ = fine.Close()
				if err := e.Close(); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Where whoever submits does not come back from the kernel, the others are answered.
func TestStuckSubmission(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	content := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	f := openIn(t, e, content, os.O_RDONLY|syscall.O_DIRECT)
	read := func() {
		p := alignedSlice(pageSize, pageSize)
		if n, err := f.ReadAt(p, pageSize); n != len(p) || err != nil || !bytes.Equal(p, content[:n]) {
			t.Error(n, err)
		}
	}
	gate := make(chan struct{})
	s.mu.Lock()
	s.gate = gate
	s.mu.Unlock()
	var hung sync.WaitGroup
	hung.Go(read)
	for deadline := time.Now().Add(never); e.Stats().InFlight == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is submitted")
		}
	}
	for range 3 {
		returns(t, "a read beside a submission that hangs", read)
	}
	s.mu.Lock()
	s.gate = nil
	s.mu.Unlock()
	close(gate)
	returns(t, "the read that hung", hung.Wait)
	// And after that requests are submitted again.
	before := s.count.Load()
	read()
	if s.count.Load() == before {
		t.Error("nothing is submitted any more")
	}
	_ = f.Close()
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}

// A copy into a file ends when that is closed, also while another operation keeps the descriptor open.
func TestCloseEndsCopies(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	f := openIn(t, e, make([]byte, pageSize), os.O_RDWR)
	s.mu.Lock()
	s.answer = func(*request) bool { return true }
	s.mu.Unlock()
	var hung sync.WaitGroup
	hung.Go(func() { _, _ = f.ReadAt(make([]byte, 10), 0) })
	for e.Stats().InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	from, to := io.Pipe()
	copied := make(chan error, 1)
	go func() {
		_, err := f.ReadFrom(bufio.NewReader(from))
		copied <- err
	}()
	if _, err := to.Write([]byte("first")); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = to.Write([]byte("second")) }()
	select {
	case err := <-copied:
		if !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	case <-time.After(never):
		t.Error("it goes on")
	}
	_ = to.Close()
	s.release()
	returns(t, "the read", hung.Wait)
	if got, err := os.ReadFile(f.Name()); err != nil || bytes.Contains(got, []byte("second")) {
		t.Error("it was written after Close", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
}
