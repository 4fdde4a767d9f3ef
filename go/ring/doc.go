// Package ring is io_uring for Go, without cgo and without a C library. It is the raw interface,
// for programs that drive a ring themselves. Package ringway builds on it and offers files with the
// methods of [os.File].
//
// A ring has two queues. A method named after its operation prepares a [Request]; [Ring.Push] puts
// it into the submission queue, and [Ring.SubmitAndWait] or [Ring.Submit] hands it to the kernel.
// [Ring.Reap] takes its [Completion] from the completion queue. One system call submits many
// requests, and taking completions rarely needs one.
//
//	r, err := ring.New(ring.Options{})
//	if err != nil {
//		return err
//	}
//	defer r.Close()
//
//	q := new(ring.Request).Read(fd, buf, 0)
//	if err := r.Push(q); err != nil {
//		return err
//	}
//	if _, err := r.SubmitAndWait(1, -1); err != nil {
//		return err
//	}
//	var done [16]ring.Completion
//	for _, c := range done[:r.Reap(done[:])] {
//		fmt.Println(c.Request == q, c.Result, c.Err())
//	}
//
// A [Ring] is not safe for concurrent use by several goroutines.
//
// # Completions
//
// Each pushed request completes once. Exceptions are the operations with several completions, whose
// names end in Multishot or ZC, and requests that [Ring.Withdraw] or [Ring.Close] takes back.
// Completions arrive in any order. A canceled request completes, too.
//
// # Memory
//
// From Push until its last completion, a request and every buffer, path and address in it belong to
// the kernel. The ring keeps the request reachable and pins what the kernel accesses with
// [runtime.Pinner], so it is neither moved nor freed, even if the program drops its own references.
// No method takes an address as a number.
//
// The program must not read or write a buffer during that time. The race detector does not see the
// kernel's accesses.
//
// [Ring.Close] cancels requests in flight and waits for them, for a bounded time. Memory that the
// kernel may still access after that stays pinned: it is leaked, never freed.
//
// # Kernels
//
// The package requires Linux 5.6. From 5.11 on, waiting with a timeout is cheap. Methods that
// require a newer kernel name it. An operation that the kernel does not know completes with EINVAL;
// [Ring.Probe] lists the known ones. If the seccomp filter of a container refuses io_uring, [New]
// returns EPERM or ENOSYS.
//
// Not implemented, as of Linux 6.18: large entries (SQE128, CQE32) and the passthrough commands
// that need them, completion suppression, registered ring descriptors, restrictions and
// personalities, control data of messages, extended attributes, futexes, epoll and waitid.
package ring
