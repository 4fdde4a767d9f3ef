// Package ring is io_uring for Go, without cgo: a submission queue, a completion queue, and requests that own every
// byte the kernel may touch.
//
// A [Ring] is for one goroutine at a time, as a bufio.Reader is. Requests are prepared ([Request.Read] and its kin),
// pushed, submitted and reaped:
//
//	r, err := ring.New(ring.Options{})
//	...
//	defer r.Close()
//	var read ring.Request
//	read.Read(fd, buf, 0)
//	if err := r.Push(&read); err != nil { ... }
//	if _, err := r.Wait(1, -1); err != nil { ... }
//	var done [1]ring.Completion
//	n := r.Reap(done[:])
//
// # Memory
//
// From Push to its last completion a request, and every buffer, path and address in it, belongs to the kernel. The ring
// holds the request in a table and pins what the kernel sees with [runtime.Pinner], so nothing of it moves or is freed,
// whatever the program does with its own references. No method takes an address as a number.
//
// Do not touch a buffer in between. The race detector cannot see the kernel; give a buffer to another goroutine by a
// channel or a lock, after its completion.
//
// [Ring.Close] cancels what is in flight and waits for it, for a bounded time. What the kernel still holds then stays
// pinned for ever: it is leaked, never freed.
package ring
