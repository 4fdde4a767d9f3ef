//go:build linux

package net

// Which rings there are, and why none.

import (
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/internal/readable"
	"github.com/ringway-io/ringway/go/internal/refusal"
	"github.com/ringway-io/ringway/go/ring"
	"github.com/ringway-io/ringway/go/ringway"
)

// engine is what all sockets share: a few rings. Without any, sockets are the standard package's.
type engine struct {
	shards  []*shard
	next    atomic.Uint32
	explain string
	err     error // A backend was asked for that is not to be had.
}

var sockets = sync.OnceValue(newEngine)

// Explain tells whether sockets are on io_uring or the standard package's, and what was refused, with reason and mend.
func Explain() string {
	e := sockets()
	if e.err != nil {
		return e.err.Error()
	}
	return e.explain
}

func newEngine() *engine {
	asked := os.Getenv(ringway.BackendEnv)
	switch ringway.Backend(asked) {
	case "", ringway.BackendURing:
	case ringway.BackendKAIO, ringway.BackendThreads:
		return &engine{explain: "package net, since " + ringway.BackendEnv + " is " + asked}
	default:
		return &engine{err: refusal.NoBackend(ringway.BackendEnv, asked)}
	}
	e := new(engine)
	for range min(runtime.GOMAXPROCS(0), most) {
		s, err := newShard()
		if err != nil {
			if len(e.shards) > 0 {
				break // Memory may allow only some.
			}
			if asked != "" {
				return &engine{err: err}
			}
			return &engine{explain: "package net\n" + err.Error()}
		}
		e.shards = append(e.shards, s)
	}
	e.explain = fmt.Sprintf("backend uring, rings: %d", len(e.shards))
	return e
}

// carries tells whether sockets of a network are ours.
func (e *engine) carries(network string) bool {
	switch network {
	case "tcp", "tcp4", "tcp6", "unix":
		return len(e.shards) > 0
	}
	return false
}

// shard for a new socket: each has its turn.
func (e *engine) shard() *shard { return e.shards[int(e.next.Add(1))%len(e.shards)] }

const (
	// most rings that there are.
	most = 4
	// completions that a ring has room for. More wait in the kernel, which is slower: a thousand idle connections may all
	// become busy at once.
	completions = 1024
)

// shard is a ring that sockets share. Whoever begins an operation submits it and reaps what is done, under the lock; for the
// rest there is the reaper, a goroutine in Go's poller.
type shard struct {
	mu    sync.Mutex
	ring  *ring.Ring
	spare []*ring.Request // For cancels.
	done  [64]ring.Completion
}

// newShard makes a ring that has passed a trial. The error is a *[ringway.Refusal].
func newShard() (*shard, error) {
	r, err := ring.New(ring.Options{CompletionEntries: completions})
	if err != nil {
		return nil, err
	}
	s := &shard{ring: r}
	if err = trial(r); err == nil {
		if _, err = readable.Start(r.Fd(), s.reap); err == nil { // It stays, as the ring does.
			return s, nil
		}
	}
	_ = r.Close()
	return nil, refusal.New(refusal.Uring, refusal.Errno(err))
}

// trial does what sockets will do: to have set up a ring proves nothing, since some sandboxes grant that and refuse every
// operation.
func trial(r *ring.Ring) error {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fds[0])
	defer syscall.Close(fds[1])
	const text = "ringway"
	recv, cancel, send := new(ring.Request), new(ring.Request), new(ring.Request)
	p := make([]byte, 2*len(text))

	// One that waits is ended early.
	if err := r.Push(recv.Recv(fds[0], p, 0)); err != nil {
		return err
	}
	if _, err := r.Submit(); err != nil {
		return err
	}
	if err := r.Push(cancel.Cancel(recv)); err != nil {
		return err
	}
	if result, err := await(r, recv, cancel); err != nil || result != -int32(syscall.ECANCELED) && result != -int32(syscall.EINTR) {
		return cause(result, err)
	}
	// And one is answered.
	if err := r.Push(recv.Recv(fds[0], p, 0)); err != nil {
		return err
	}
	if err := r.Push(send.Send(fds[1], []byte(text), 0)); err != nil {
		return err
	}
	result, err := await(r, recv, send)
	if err != nil || result != int32(len(text)) || string(p[:result]) != text {
		return cause(result, err)
	}
	return nil
}

// await submits until both are done; the result of the first.
func await(r *ring.Ring, q, other *ring.Request) (result int32, err error) {
	deadline := time.Now().Add(5 * time.Second)
	for {
		if _, err := r.Submit(); err != nil && err != ring.ErrReap {
			return 0, err
		}
		var done [2]ring.Completion
		for _, c := range done[:r.Reap(done[:])] {
			if c.Request == q {
				result = c.Result
			}
		}
		switch {
		case !q.InFlight() && !other.InFlight():
			return result, nil
		case time.Now().After(deadline):
			return 0, syscall.ETIMEDOUT
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func cause(result int32, err error) error {
	switch {
	case err != nil:
		return err
	case result < 0:
		return syscall.Errno(-result)
	}
	return syscall.EIO
}

// push puts a request into the submission queue. The lock is held, and there is room.
func (s *shard) push(q *ring.Request) {
	if err := s.ring.Push(q); err != nil {
		panic(err) // There was room, and nobody else has the request.
	}
}

// makeRoom has room for one more request. The lock is held, though not all the time.
func (s *shard) makeRoom() {
	for s.ring.Room() == 0 {
		s.enter()
	}
}

// enter gives the kernel all that was pushed, and takes what is done. The lock is held, though not all the time.
func (s *shard) enter() {
	for {
		before := s.ring.Waiting()
		_, err := s.ring.Submit()
		taken := s.take()
		left := s.ring.Waiting()
		switch {
		case left == 0:
			return
		case err != nil && err != ring.ErrReap:
			// The kernel takes none of it: a filter that came later, say.
			errno := refusal.Errno(err)
			for _, q := range s.ring.Withdraw() {
				s.land(ring.Completion{Request: q, Result: -int32(errno)})
			}
		case left == before && !taken:
			// It is short of something, and has nothing to give back.
			s.mu.Unlock()
			time.Sleep(100 * time.Microsecond)
			s.mu.Lock()
		}
	}
}

// settle returns when the kernel has let go of the descriptors of all that has landed. It tells of an operation's end a
// moment before that, with the ring locked for submissions: one that does nothing waits for it.
func (s *shard) settle() {
	s.mu.Lock()
	s.makeRoom()
	s.push(new(ring.Request).Nop())
	s.enter()
	s.mu.Unlock()
}

// take reaps all that is done; whether there was any. The lock is held.
func (s *shard) take() (any bool) {
	for {
		n := s.ring.Reap(s.done[:])
		for i, c := range s.done[:n] {
			s.done[i].Request = nil
			s.land(c)
		}
		any = any || n > 0
		if n < len(s.done) {
			return any
		}
	}
}

// reap is called when the ring's descriptor tells of completions.
func (s *shard) reap(uintptr) bool {
	s.mu.Lock()
	s.take()
	s.mu.Unlock()
	return false
}

// land is the end of a request's flight. The lock is held.
func (s *shard) land(c ring.Completion) {
	switch tag := c.Request.Tag.(type) {
	case *direction:
		tag.flying, tag.result = nil, c.Result
		tag.landed <- struct{}{}
	case cancelled:
		c.Request.Tag = nil
		c.Request.Drop() // It keeps nothing alive.
		s.spare = append(s.spare, c.Request)
		if c.Result < 0 && tag.flying != nil && tag.stopped() != nil {
			// The kernel did not find it, or could not stop it there. It may be between two places: look again.
			time.AfterFunc(time.Millisecond, tag.cancel)
		}
	}
}

// cancelled is the tag of a cancel: whose operation it is to end.
type cancelled struct{ *direction }
