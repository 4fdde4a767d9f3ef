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
// # Threads
//
// The kernel attributes a request to the thread that submits it. When that thread ends, requests
// that it has in flight end too: with ECANCELED, or with EFAULT if the kernel was about to continue
// one. The operation was then not done, or a part of it only; it can be submitted again. A thread
// ends when a goroutine returns that has locked it ([runtime.LockOSThread]). Go does not move a
// goroutine to another thread on purpose, but it may do so at any time, so that any thread of the
// program may be the one that has submitted. A goroutine that has locked its thread, submits all
// requests of a ring, and lives as long as they do, avoids that.
//
// While one thread waits in [Ring.Submit], each other thread that has submitted to the same ring
// before, and whose request completes, waits for it in its next system call. That holds up the
// goroutine that it runs, whatever that does.
//
// # Memory ordering
//
// The kernel and the program share the heads and tails of the queues without a lock, and machines
// such as arm64 and riscv64 reorder plain loads and stores. The package accesses the words that the
// kernel writes, and those that it reads while the program runs, with sync/atomic, which is
// sequentially consistent on every architecture. Entries are plain memory that a head or a tail
// publishes. It relies on this:
//
//   - A request is stored before the tail of the submission queue (a release), so the kernel never
//     takes an entry that is half written. Its head is loaded (an acquire) before an entry is used
//     again, so the kernel has read the old one.
//   - With SQPOLL, the tail is stored before the flag NEED_WAKEUP is loaded. The kernel thread sets
//     the flag before it looks at the tail a last time. Of the two, one sees the other, which takes
//     more than acquire and release: both accesses are sequentially consistent.
//   - The tail of the completion queue is loaded before its entries are read, and its head is
//     stored after that, so the kernel overwrites no entry that is still being read.
//   - The buffers of a [BufferRing] are stored before its tail. The tail has 16 bits; it is stored
//     together with its neighbor in one aligned word, which only the program writes.
//   - What the kernel wrote to a buffer is visible after its completion was reaped. Another
//     goroutine needs an ordinary synchronization with the one that reaped it.
//
// Only words that the program alone writes are read plainly: its own tail and head. Without SQPOLL
// the kernel takes entries within the system call of the submission.
//
// # Page size
//
// Pages may have 4, 16 or 64 KiB. The sizes of the mappings come from io_uring_setup, and the
// kernel rounds them up; the offsets of the mappings are constants of the ABI, multiples of 64 KiB.
// A [BufferRing] begins on a page of the machine ([os.Getpagesize]), as the kernel demands. The
// largest transfer is a little below 2 GiB; with pages larger than 4 KiB the kernel shortens it
// further, as a short transfer.
//
// # Kernels
//
// The package requires Linux 5.6; on other systems it is empty, so files that import it need a
// build constraint. From 5.11 on, waiting with a timeout is cheap. Methods that require a newer
// kernel name it. An operation that the kernel does not know completes with EINVAL; [Ring.Probe]
// lists the known ones. If the seccomp filter of a container refuses io_uring, [New] returns EPERM
// or ENOSYS.
//
// From Linux 6.18 on, the first submission of a thread to a ring takes some 0.2 ms longer, and up
// to 60 ms where no io-wq worker can start, if another ring of the process was closed within a
// second: otherwise the kernel might never start a request that needs a worker.
//
// Not implemented, as of Linux 6.18: large entries (SQE128, CQE32) and the passthrough commands
// that need them, completion suppression, registered ring descriptors, restrictions and
// personalities, control data of messages, extended attributes, futexes, epoll and waitid.
package ring
