// Package ringway reads and writes files asynchronously under ordinary goroutines: one engine over io_uring, Linux KAIO or
// plain system calls, without cgo.
//
// A [File] has the methods of an [os.File] and keeps their contracts. A goroutine that reads parks until the kernel is
// done, as it does on a network connection, so that any number of reads in flight need no threads.
//
//	f, err := ringway.Open("data")
//	...
//	n, err := f.ReadAt(p, off)
//
// What is in the page cache is copied at once, with one system call and no ring. Everything else goes to one of a few rings
// that all goroutines share; under load they submit together and pick up each other's completions.
//
// # Buffers
//
// A buffer belongs to the kernel until the method that was given it returns. A method whose context can end uses memory of
// ringway's and copies, so that it can return as soon as the context ends; [File.ReadBuf] reads into a buffer of ringway's own
// and saves the copy. After [ErrAbandoned] a buffer is not the program's again.
//
// # Backends
//
// io_uring is tried first, with a real read, then Linux KAIO, which carries direct I/O alone, then plain system calls.
// RINGWAY_BACKEND=uring, kaio or threads forces one, and so does [Options.Backend]. [Explain] tells which it is, and why
// not another.
package ringway
