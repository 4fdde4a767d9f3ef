//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Operations that the kernel refuses although it accepted them before, or ends without doing them.

package ringway

import (
	"bytes"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"
)

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
		expect(t, n == len(p) && err == nil && bytes.Equal(p, content[off:][:n]), "%v, %v", n, err)
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

// refusing is a queue that refuses every request after all.
type refusing struct{ queue }

func (c *refusing) push(r *request) {
	r.result = unsupported
	switch q := c.queue.(type) {
	case *uring:
		q.refused = append(q.refused, r)
	case *kaio:
		q.refused = append(q.refused, r)
	}
	if r.linked() != nil {
		c.push(r.linked())
	}
}

// If the kernel refuses operations that it accepted before, goroutines make plain calls.
func TestKernelRefusesLater(t *testing.T) {
	e := newOrSkip(t, Options{Backend: BackendURing, AlwaysRing: true, Rings: 1,
		wrap: func(q queue) queue { return &refusing{q} }})
	f := openIn(t, e, []byte("0123456789"), os.O_RDWR)
	p := make([]byte, 4)
	if n, err := f.ReadAt(p, 3); n != 4 || err != nil || string(p) != "3456" {
		t.Fatal(n, err)
	}
	must(t, f.Sync())
	batch := []Transfer{{P: make([]byte, 2)}, {P: make([]byte, 2), Off: 8}}
	if err := f.ReadBatch(batch); err != nil || string(batch[1].P) != "89" {
		t.Fatal(err)
	}
	writes := []Transfer{{P: []byte("ab")}, {P: []byte("cd"), Off: 2}}
	must(t, f.WriteBatch(writes, FullSync))
	got := content(t, f)
	require(t, string(got) == "abcd456789", "%v", string(got))
}
