//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Operations that the kernel does not complete (a hung disk, a server that has gone), and those on
// other files.

package ringway

import (
	"bytes"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
)

// However many reads of one file hang, reads of another file complete: single ones, and batches.
func TestHungTransfersDoNotBlockOthers(t *testing.T) {
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		for _, count := range []int{1, 15, 16, 50, 500} {
			t.Run(fmt.Sprint(backend, ", ", count), func(t *testing.T) {
				hungTransfers(t, backend, count)
			})
		}
	}
}

func hungTransfers(t *testing.T, backend Backend, count int) {
	e, s := scriptedEngine(t, Options{Backend: backend})
	content := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	hung := openIn(t, e, content, os.O_RDONLY|Direct)
	fine := openIn(t, e, content, os.O_RDONLY|Direct)
	var swallowed []*request
	s.onPush(func(r *request) bool { // As if the kernel had it and never completed it.
		if r.fd == hung.fd {
			swallowed = append(swallowed, r)
		}
		return r.fd == hung.fd
	})
	var all sync.WaitGroup
	for range count {
		all.Go(func() {
			p := alignedSlice(pageSize, pageSize)
			if n, err := hung.ReadAt(p, 0); n != len(p) || err != nil {
				t.Error(n, err)
			}
		})
	}
	eventually(t, "the reads are submitted", func() bool {
		stats := e.Stats()
		return stats.InFlight+stats.Waiting == count || count > 192 && stats.InFlight == 192
	})
	for range 3 {
		returns(t, "a read of another file", func() {
			p := alignedSlice(pageSize, pageSize)
			n, err := fine.ReadAt(p, 0)
			if n != len(p) || err != nil || !bytes.Equal(p, content[:n]) {
				t.Error(n, err)
			}
		})
	}
	returns(t, "a batch on another file", func() {
		batch := make([]Transfer, 8)
		for i := range batch {
			batch[i] = Transfer{P: alignedSlice(pageSize, pageSize), Off: int64(i) * pageSize}
		}
		check(t, fine.ReadBatch(batch))
	})
	s.onPush(nil)
	for _, r := range swallowed {
		r.result = -int32(syscall.EINTR)
	}
	s.complete(swallowed)
	returns(t, "a read that hung", all.Wait)
}

// While a combiner hangs in the kernel, the operations of other goroutines complete.
func TestHungSubmissionDoesNotBlockOthers(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	content := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	f := openIn(t, e, content, os.O_RDONLY|Direct)
	read := func() {
		p := alignedSlice(pageSize, pageSize)
		n, err := f.ReadAt(p, pageSize)
		if n != len(p) || err != nil || !bytes.Equal(p, content[:n]) {
			t.Error(n, err)
		}
	}
	gate := make(chan struct{})
	s.setGate(gate)
	var hung sync.WaitGroup
	hung.Go(read)
	eventually(t, "a read is submitted", func() bool { return e.Stats().InFlight > 0 })
	for range 3 {
		returns(t, "a read during a submission that hangs", read)
	}
	s.setGate(nil)
	close(gate)
	returns(t, "the read that hung", hung.Wait)
	before := s.count.Load()
	read()
	if s.count.Load() == before {
		t.Error("nothing is submitted any more")
	}
}
