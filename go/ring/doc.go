// Package ring is io_uring for Go, in Go: no cgo and no C library. It is the raw interface, for programs that want to drive a
// ring themselves. Package ringway, built on it, has files with the methods of os.File.
//
// There are two queues between a program and the kernel. A [Request] is prepared by a method named after its operation,
// pushed into the submission queue, and submitted; its [Completion] is then reaped from the completion queue. One system call
// submits many requests, and most completions need none.
//
//	r, err := ring.New(ring.Options{})
//	...
//	defer r.Close()
//	q := new(ring.Request).Read(fd, buf, 0)
//	err = r.Push(q)
//	...
//	_, err = r.SubmitAndWait(1, -1) // Submits, and waits for one completion.
//	...
//	var done [16]ring.Completion
//	for _, c := range done[:r.Reap(done[:])] {
//		fmt.Println(c.Request == q, c.Result, c.Err())
//	}
//
// A [Ring] is for one goroutine at a time, as a bufio.Reader is.
//
// # Completions
//
// Each request that is pushed completes once, unless it is one of several completions by its nature (a method's name that
// ends in Multi, or in ZC), or [Ring.Withdraw] or [Ring.Close] takes it back. Completions come in any order. A request that is
// cancelled completes, too.
//
// # Memory
//
// From Push to its last completion a request, and every buffer, path and address in it, belongs to the kernel. The ring keeps
// the request reachable and pins all that the kernel sees with [runtime.Pinner]: it is neither moved nor freed, whatever the
// program does with its own references. No method takes an address as a number.
//
// Do not touch a buffer meanwhile. The race detector does not see what the kernel does to it.
//
// [Ring.Close] cancels what is in flight and waits for it, for a bounded time. What the kernel still holds then stays pinned
// for ever: it is leaked, never freed.
//
// # Kernels
//
// The package needs kernel 5.6; kernel 5.11 makes waiting with a timeout cheap. Whatever needs a newer one says which in its
// documentation. An operation that the kernel does not know completes with EINVAL; [Ring.Probe] tells beforehand. What a
// container's seccomp filter refuses is refused by [New], with EPERM or ENOSYS.
//
// Of what kernel 6.18 has these are missing: large entries (SQE128, CQE32) and the pass-through commands that need them,
// completions that are suppressed, registered ring descriptors, restrictions and personalities, control data of messages,
// extended attributes, futexes, epoll and waitid.
package ring
