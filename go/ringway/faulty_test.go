//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// The engine over a queue that fails in every way that the kernel may.

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
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

// faulty wraps a queue and makes of it what kernels are on bad days: transfers that stop early, signals, shortages,
// answers in another order, and late.
type faulty struct {
	queue
	random *rand.Rand
	late   []*request
	shard  *shard
	faults int
}

func (f *faulty) push(r *request) {
	if len(r.p) >= 8192 && f.random.IntN(4) == 0 {
		f.faults++
		r.p = r.p[:len(r.p)/2&^4095]
	}
	f.queue.push(r)
}

func (f *faulty) submit(light bool) bool {
	ok := f.queue.submit(light)
	if f.random.IntN(10) == 0 {
		f.faults++
		return false
	}
	return ok
}

func (f *faulty) reap(done []*request) []*request {
	all := append(f.queue.reap(nil), f.late...)
	f.late = nil
	f.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	for _, r := range all {
		switch f.random.IntN(12) {
		case 0, 1, 2:
			f.faults++
			r.result = -int32([]syscall.Errno{syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED}[f.random.IntN(3)])
		case 3:
			f.late = append(f.late, r)
			continue
		}
		done = append(done, r)
	}
	if len(f.late) > 0 {
		// As the kernel does with what comes late, the reaper is told again.
		time.AfterFunc(100*time.Microsecond, func() {
			f.shard.mu.Lock()
			f.shard.again = true
			f.shard.turn()
		})
	}
	return done
}

// Bad days are not seen above: the same bytes, no error but the file's own, and nobody waits for ever.
func TestFaults(t *testing.T) {
	f := &faulty{random: rand.New(rand.NewPCG(3, 4))}
	e, err := New(Options{Backend: Uring, AlwaysRing: true, Rings: 1, wrap: func(q queue) queue {
		f.queue = q
		return f
	}})
	if err != nil {
		skip.Test(t, err)
	}
	s := e.shards[0]
	f.shard = s
	content := make([]byte, 1<<20)
	for i := range content {
		content[i] = byte(i * 7 >> 3)
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := e.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 5))
			for range 200 {
				p := make([]byte, random.IntN(100_000))
				off := random.IntN(len(content) - len(p))
				if n, err := file.ReadAt(p, int64(off)); n != len(p) || err != nil || !bytes.Equal(p, content[off:off+n]) {
					t.Error("other bytes, or an error:", n, len(p), err)
					return
				}
			}
		})
	}
	wg.Wait()
	if f.faults < 100 || s.snapshot().Retries == 0 {
		t.Fatal("hardly a fault was injected:", f.faults)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if s := e.Stats(); s.InFlight != 0 || s.Waiting != 0 {
		t.Fatalf("%+v", s)
	}
}

// A kernel that does not do what it said it would: the goroutine does it by itself.
type refusing struct{ queue }

func (c *refusing) push(r *request) {
	r.result = cannotCarry
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

func TestRefusedLater(t *testing.T) {
	e, err := New(Options{Backend: Uring, AlwaysRing: true, Rings: 1, wrap: func(q queue) queue {
		return &refusing{q}
	}})
	if err != nil {
		skip.Test(t, err)
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := e.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4)
	if n, err := f.ReadAt(p, 3); n != 4 || err != nil || string(p) != "3456" {
		t.Fatal(n, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	batch := []Transfer{{P: make([]byte, 2)}, {P: make([]byte, 2), Off: 8}}
	if err := f.ReadBatch(batch); err != nil || string(batch[1].P) != "89" {
		t.Fatal(err)
	}
	if err := f.WriteBatch([]Transfer{{P: []byte("ab")}, {P: []byte("cd"), Off: 2}}, FullSync); err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(name); string(got) != "abcd456789" {
		t.Fatal(string(got))
	}
	f.Close()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestPace(t *testing.T) {
	p := pace{cap: 256}
	if !p.due(1, 0) || p.due(0, 0) {
		t.Fatal("one alone is submitted at once, and nothing is not")
	}
	p.submitted(128)
	if p.due(15, 0) || !p.due(16, 0) {
		t.Fatal("under load an eighth gathers")
	}
	p.completed(128)
	if p.due(15, 128) {
		t.Fatal("those who were woken gather too")
	}
	p.submitted(256)
	if p.room() != 0 || p.due(1000, 0) {
		t.Fatal("there is no room")
	}
	// Whatever is held back, it is never for want of completions.
	for inFlight := range 300 {
		for waiting := 1; waiting < 300; waiting++ {
			p := pace{cap: 192, inFlight: inFlight}
			if !p.due(waiting, 0) && inFlight == 0 {
				t.Fatal("held back, and nobody is to come:", inFlight, waiting)
			}
		}
	}
}

func TestGuess(t *testing.T) {
	var g guess
	ways := func(n int) (count [3]int) {
		for range n {
			w := g.way()
			count[w]++
			if w == look {
				g.miss()
			}
		}
		return count
	}
	if ways(3)[look] != 3 {
		t.Fatal("a few misses say nothing")
	}
	if n := ways(10_000)[look]; n < 4 || n > 60 {
		t.Fatal("many do:", n)
	}
	g.hit()
	g.skip.Store(0)
	if ways(3)[look] != 3 {
		t.Fatal("a hit makes up for them")
	}

	for range enough {
		if g.way() == plain {
			t.Fatal("too early to be certain")
		}
		g.skip.Store(0)
		g.hit()
	}
	var count [3]int
	for range 100 * glance {
		count[g.way()]++
	}
	if count[away] > 0 || count[look] < 50 || count[look] > 200 {
		t.Fatalf("one read in %d looks: %v", glance, count)
	}
	g.miss()
	if g.way() != look {
		t.Fatal("a miss ends certainty")
	}
}

// What is believed to be in the page cache and is not, is read all the same, and then no longer believed.
func TestEvicted(t *testing.T) {
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	f, err := e.Create(filepath.Join(t.TempDir(), "file"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content := make([]byte, 4<<20)
	for i := range content {
		content[i] = byte(i >> 12)
	}
	if n, err := f.WriteAt(content, 0); n != len(content) || err != nil {
		t.Fatal(n, err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	p := make([]byte, 4096)
	all := func(rounds int) {
		for i := range rounds {
			page := i * 7 % 1024
			if n, err := f.ReadAt(p, int64(page)<<12); n != len(p) || err != nil || p[0] != byte(page) || p[4095] != byte(page) {
				t.Fatal(page, n, err)
			}
		}
	}
	all(2 * enough)
	if f.cache.hits.Load() < enough {
		skip.Test(t, "this file system does not tell what is cached")
	}
	for _, advice := range []Advice{Random, DontNeed} { // Random: no reading ahead.
		if err := f.Advise(0, 0, advice); err != nil {
			t.Fatal(err)
		}
	}
	if _, errno := readCached(f.fd, p, 2<<20); errno == 0 {
		skip.Test(t, "this file system has nothing but its page cache")
	}
	all(200)
	if f.cache.hits.Load() >= enough {
		t.Fatal("still certain")
	}
}

// A batch that is one range is one submission with its sync, if it is one write too; and after the engine's end it is an error.
func TestCommitOfOne(t *testing.T) {
	e, err := New(Options{Backend: Uring, Rings: 1})
	if err != nil {
		skip.Test(t, err)
	}
	name := filepath.Join(t.TempDir(), "file")
	for _, direct := range []int{syscall.O_DIRECT, 0} {
		f, err := e.OpenFile(name, os.O_RDWR|os.O_CREATE|direct, 0o600)
		if err != nil {
			skip.Test(t, "no direct I/O here: ", err)
		}
		defer f.Close()
		batch := []Transfer{{P: alignedSlice(pageSize, pageSize)}}
		before := e.Stats().Pushed
		if err := f.WriteBatch(batch, DataSync); err != nil || batch[0].N != pageSize {
			t.Fatal(err, batch[0].N)
		}
		if n := e.Stats().Pushed - before; direct != 0 && n != 2 || direct == 0 && n != 0 {
			t.Errorf("%d operations went to the ring", n)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := e.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	batch := []Transfer{{P: make([]byte, 1)}, {P: make([]byte, 1), Off: 1}}
	if err := f.WriteBatch(batch, NoSync); !errors.Is(err, ErrEngineClosed) || batch[0].N != 0 {
		t.Error(err, batch[0].N)
	}
}

// A buffered file goes to a connection without a copy through the program, and a direct one with it; at their positions.
func TestSendfile(t *testing.T) {
	content := make([]byte, 1<<20+5)
	for i := range content {
		content[i] = byte(i >> 8)
	}
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	for _, direct := range []int{0, syscall.O_DIRECT} {
		f, err := e.OpenFile(name, os.O_RDONLY|direct, 0)
		if err != nil {
			skip.Test(t, "no direct I/O here: ", err)
		}
		defer f.Close()
		if _, err := f.Seek(5, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		received := make(chan []byte, 1)
		go func() {
			defer close(received)
			c, err := l.Accept()
			if err != nil {
				return
			}
			all, _ := io.ReadAll(c)
			received <- all
			c.Close()
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		n, err := io.Copy(c, struct{ io.Reader }{io.LimitReader(f, 100)})
		if n != 100 || err != nil {
			t.Fatal(n, err)
		}
		hits := f.cache.hits.Load()
		if n, err := c.(io.ReaderFrom).ReadFrom(io.LimitReader(f, 1<<20-200)); n != 1<<20-200 || err != nil {
			t.Fatal(n, err)
		}
		if direct == 0 && f.cache.hits.Load() != hits {
			t.Error("it was read by the program")
		}
		if n, err := io.Copy(c, f); n != 100 || err != nil { // To the end, from where it stands.
			t.Fatal(n, err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(<-received, content[5:]) {
			t.Fatal("other bytes")
		}
	}
}

func TestHold(t *testing.T) {
	for range 200 {
		var h hold
		var users, lasts atomic.Int32
		var wg sync.WaitGroup
		out := func(last bool) {
			if last {
				lasts.Add(1)
				if users.Load() != 0 {
					t.Error("the last one, while there are others")
				}
			}
		}
		for range 8 {
			wg.Go(func() {
				for h.begin() {
					users.Add(1)
					h.again()
					users.Add(-1)
					out(h.end())
					users.Add(1)
					users.Add(-1)
					out(h.end())
				}
				out(h.end())
			})
		}
		var firsts atomic.Int32
		for range 2 {
			wg.Go(func() {
				first, last := h.close()
				if first {
					firsts.Add(1)
				}
				out(last)
			})
		}
		wg.Wait()
		if firsts.Load() != 1 || lasts.Load() != 1 {
			t.Fatalf("%d were the first to close, %d the last to go", firsts.Load(), lasts.Load())
		}
	}
}
