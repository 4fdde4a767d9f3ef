// Package ringway reads and writes files asynchronously under ordinary goroutines. One engine
// submits the operations through io_uring, Linux AIO or plain system calls. It is pure Go, without
// cgo.
//
// A [File] has the methods of an [os.File] and keeps their contracts:
//
//	f, err := ringway.Open("data")
//	...
//	n, err := f.ReadAt(p, off)
//
// A goroutine that reads parks until the kernel completes the read, as it does on a network
// connection, so thousands of reads in flight need only a few threads. With direct I/O, which
// bypasses the page cache, neither the offset nor the buffer of a read needs to be aligned:
//
//	f, err := ringway.OpenFile("data", os.O_RDONLY|ringway.Direct, 0)
//
// [File.ReadBatch] reads many ranges in one submission. [File.WriteBatch] is a group commit: it
// writes several ranges and syncs the file once:
//
//	err := f.ReadBatch([]ringway.Transfer{{P: p, Off: 0}, {P: q, Off: 1 << 20}})
//	err = log.WriteBatch(records, ringway.DataSync)
//
// Methods that take a context return as soon as the context ends:
//
//	buf, err := f.ReadBuf(ctx, off, 4096)
//	...
//	buf.Release()
//
// The functions of the package use the engine that [Default] returns. [New] makes another one.
//
// # When not to use it
//
// A read of cached data is one system call, as with os.File, and costs the same. A program that
// has only a few reads in flight, or whose data is cached, gains nothing. Pipes, sockets and
// terminals are left to package os and its poller; use package net for sockets.
//
// # Buffers
//
// A buffer belongs to the kernel until the method that received it returns. A method whose
// context can end therefore works on memory of the package and copies, so that it can return at
// once; [File.ReadBuf] reads into a pooled [Buffer] and saves the copy. After [ErrAbandoned], the
// buffer must never be used again.
//
// # Backends
//
// An engine tries io_uring first, with a real read, then Linux AIO, which supports direct I/O only,
// and then plain system calls. [Options.Backend] or the environment variable RINGWAY_BACKEND
// (uring, kaio or threads) forces one. [Explain] names the backend in use, and why a better one is
// not available.
//
// io_uring and Linux AIO are asynchronous only on some file systems. The queues get the files of
// those that are known to work: ext4, XFS, btrfs, f2fs, tmpfs, block devices, and some files of an
// overlay. Transfers of all other files (FUSE, network file systems, /proc) are the system calls
// that package os makes, with the same results.
//
// # Other systems
//
// The rings need Linux on amd64, arm64, loong64 or riscv64. Every other system has the same File
// with the backend [BackendThreads]: limits on blocking calls, contexts, batches, errors and
// syncs are the same. What differs:
//
//   - [Direct] is F_NOCACHE on macOS. Elsewhere transfers use the page cache. Direct writes must be
//     aligned in either case.
//   - [File.Preallocate], [File.Advise] and [File.SyncRange] fail with [errors.ErrUnsupported].
//     [File.PreallocateWritten] reserves nothing before it writes.
//   - [File.Datasync] is [File.Sync], which is F_FULLFSYNC on macOS.
//   - Batches are written range by range, and a batch that is appended is copied first.
package ringway
