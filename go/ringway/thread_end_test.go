//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Threads that end: the kernel then ends what they have submitted, for any goroutine, with EFAULT.

package ringway

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"
)

// endWith makes the next n results of an operation an error. It returns a function for how many are
// left.
func endWith(s *scripted, op opcode, n int, errno syscall.Errno) (count func() int) {
	left := n
	s.onResult(func(r *request) bool {
		if r.opcode == op && left > 0 {
			left--
			r.result = -int32(errno)
		}
		return false
	})
	return func() int { return left }
}

// Every operation that ends with EFAULT is done again: by the queue, and at last by a plain call.
func TestOperationsOfEndedThreadAreRepeated(t *testing.T) {
	for _, op := range []opcode{opRead, opWrite, opWritev, opFsync, opFdatasync} {
		for _, times := range []int{1, maxRetries, maxRetries + 1} {
			t.Run(fmt.Sprint(opcodeName(op), " ", times), func(t *testing.T) {
				e, s := scriptedEngine(t, Options{Backend: BackendURing})
				content := numbered(1, 1, 4)
				f := openIn(t, e, content, os.O_RDWR|Direct)
				left := endWith(s, op, times, syscall.EFAULT)
				p := page()
				var err error
				switch op {
				case opRead:
					_, err = f.ReadAt(p, pageSize)
					if !bytes.Equal(p, content[pageSize:][:pageSize]) {
						t.Error("wrong bytes")
					}
				case opWrite:
					_, err = f.WriteAt(p, pageSize)
				case opWritev:
					err = f.WriteBatch(pages(pageSize), DataSync)
				case opFsync:
					err = f.Sync()
				case opFdatasync:
					err = f.WriteBatch(pages(2*pageSize), DataSync)
				}
				check(t, err)
				if op != opWritev && left() > 0 {
					t.Error(left(), "results were not asked for")
				}
			})
		}
	}
}

// Goroutines lock their thread, read, and return. No other goroutine notices.
func TestThreadsEnd(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendURing, AlwaysRing: true, Rings: 1})
	content := numbered(3, 1, 8192)
	f := openIn(t, e, content, os.O_RDONLY)
	must(t, f.Sync())
	read := func() {
		p := make([]byte, pageSize)
		off := rand.Int64N(int64(len(content)/pageSize)) * pageSize
		n, err := f.ReadAt(p, off)
		if n != len(p) || err != nil || !bytes.Equal(p, content[off:][:n]) {
			t.Error(n, err)
		}
	}
	end := time.Now().Add(2 * time.Second)
	var all sync.WaitGroup
	_ = f.Advise(0, 0, AdviceRandom)
	for range 64 {
		all.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				read()
			}
		})
	}
	all.Go(func() {
		for time.Now().Before(end) {
			_ = f.Advise(0, 0, AdviceDontNeed) // So that reads have to wait.
			time.Sleep(time.Millisecond)
		}
	})
	all.Go(func() {
		for time.Now().Before(end) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				runtime.LockOSThread()
				for range 4 {
					read()
				}
			}()
			<-ended
		}
	})
	returns(t, "reads", all.Wait)
}
