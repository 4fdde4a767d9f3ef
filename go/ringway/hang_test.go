//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Operations that the kernel does not complete (a hung disk, a server that has gone), and those on
// other files.

package ringway

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
)

// readsPage returns a function that reads the first page of a file and checks it.
func readsPage(f *File, content []byte) func() error {
	return func() error {
		p := page()
		if n, err := f.ReadAt(p, 0); err != nil || !bytes.Equal(p[:n], content[:pageSize]) {
			return errors.Join(fmt.Errorf("%d bytes, or wrong ones", n), err)
		}
		return nil
	}
}

// However many reads of one file hang, reads of another file complete: single ones, and batches.
func TestHungTransfersDoNotBlockOthers(t *testing.T) {
	content := bytesOf(16 * pageSize)
	for _, backend := range queueBackends {
		for _, count := range []int{1, 15, 16, 50, 500} {
			e, s := scriptedEngine(t, Options{Backend: backend})
			hung, fine := openIn(t, e, content, os.O_RDONLY|Direct),
				openIn(t, e, content, os.O_RDONLY|Direct)
			var swallowed []*request
			s.onPush(func(r *request) bool { // As if the kernel had it and never completed it.
				if r.fd == hung.fd {
					swallowed = append(swallowed, r)
				}
				return r.fd == hung.fd
			})
			var ends []func(error)
			for range count {
				ends = append(ends, begin(t, "a read that hung", readsPage(hung, content)))
			}
			eventually(t, "the reads are submitted", func() bool {
				stats := e.Stats()
				return stats.InFlight+stats.Waiting == count || count > 192 && stats.InFlight == 192
			})
			for range 3 {
				begin(t, fmt.Sprint("a read of another file, ", backend, ", ", count),
					readsPage(fine, content))(nil)
			}
			batch := make([]Transfer, 8)
			for i := range batch {
				batch[i] = Transfer{P: page(), Off: int64(i) * pageSize}
			}
			begin(t, "a batch on another file", func() error { return fine.ReadBatch(batch) })(nil)
			s.onPush(nil)
			for _, r := range swallowed {
				r.result = -int32(syscall.EINTR)
			}
			s.complete(swallowed)
			for _, end := range ends {
				end(nil)
			}
		}
	}
}

// While a combiner hangs in the kernel, the operations of other goroutines complete.
func TestHungSubmissionDoesNotBlockOthers(t *testing.T) {
	e, s := scriptedEngine(t, Options{})
	content := bytesOf(16 * pageSize)
	read := readsPage(openIn(t, e, content, os.O_RDONLY|Direct), content)
	gate := make(chan struct{})
	s.setGate(gate)
	hung := begin(t, "the read that hung", read)
	submitted(t, e)
	for range 3 {
		begin(t, "a read during a submission that hangs", read)(nil)
	}
	s.setGate(nil)
	close(gate)
	hung(nil)
	before := s.count.Load()
	check(t, read())
	expect(t, s.count.Load() != before, "nothing is submitted any more")
}
