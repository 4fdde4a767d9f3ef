//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Transfers whose submission may wait in the kernel, although their file system is asynchronous. A
// ring gives them to a kernel thread (IOSQE_ASYNC); instead of Linux AIO, plain calls do them.
//
// While a thread waits in io_uring_enter, every thread that has submitted to the same ring before
// waits for it in its next system call, as soon as something of its own completes. Whatever
// goroutines run there stand still, and so does the garbage collector. So it does not suffice that
// Go's scheduler knows of the call: such transfers must not be started in it.
//
// Tries to read from the page cache (RWF_NOWAIT) wait for the same reasons. With a context that can
// end, a try that may wait is made by another goroutine.

package ringway

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// waits is why submissions of a file's transfers may wait.
type waits struct {
	// The blocks of the file system that tell where the data is are read by the first transfer.
	first bool
	// ext2, ext3, ext4: a change of the inode waits while the journal is committed. A direct write
	// changes its times.
	journal bool
	// Reads may change the access time.
	atime bool
}

// lookUpWaits returns the waits of the file. The first call may wait for a server.
func (f *File) lookUpWaits() *waits {
	if w := f.waits.Load(); w != nil {
		return w
	}
	f.waitsOnce.Do(func() {
		stat := f.statFileSystem()
		w := f.waitsOf(&stat)
		if w.journal && hasManyBlocks(f.fd) && f.engine.calls.begin(background) == nil {
			readExtents(f.fd)
			f.engine.calls.end()
		}
		f.waits.Store(w)
	})
	return f.waits.Load()
}

// waitsOf returns the waits of a file on a file system.
func (f *File) waitsOf(stat *syscall.Statfs_t) *waits {
	const xfs = 0x58465342
	const readOnly, noAtime, noAtimeFile = 1, 1024, 0o1000000
	w := new(waits)
	switch uint32(stat.Type) {
	case ext4Magic:
		flags, _, _ := syscall.Syscall(syscall.SYS_FCNTL, uintptr(f.fd), syscall.F_GETFL, 0)
		w.first, w.journal = true, true
		w.atime = stat.Flags&(readOnly|noAtime) == 0 && flags&noAtimeFile == 0
	case xfs:
		w.first = true
	}
	return w
}

// submissionMayWait reports whether the submission of a transfer may wait.
func (f *File) submissionMayWait(op opcode) bool {
	if f.engine.options.AlwaysRing || !op.isTransfer() {
		return false
	}
	w := f.lookUpWaits()
	return w.first && !f.warm.Load() || w.journal && op != opRead ||
		w.journal && w.atime && f.accessTime.isDue(f.fd)
}

// tryMayWait reports whether a try to read from the page cache (RWF_NOWAIT) may wait, also where it
// misses, since the kernel then starts to read. It is true until the waits are looked up, which may
// wait, too.
func (f *File) tryMayWait() bool {
	w := f.waits.Load()
	return w == nil || w.first && !f.warm.Load() || w.atime && f.accessTime.isDue(f.fd)
}

// noteDone records that a transfer is complete.
func (f *File) noteDone(op opcode) {
	if !f.warm.Load() {
		f.warm.Store(true)
	}
	if op != opRead {
		f.noteChange()
	}
}

// noteChange records that the file's times may have changed. The next read asks for the access
// time.
func (f *File) noteChange() { f.accessTime.writes.Add(1) }

// accessTime predicts whether the next read of a file changes its access time (relatime): the first
// one after a write does, and one a day.
type accessTime struct {
	mu     sync.Mutex
	due    atomic.Bool
	asked  atomic.Int64  // When the kernel was asked, in nanoseconds since started.
	writes atomic.Uint32 // How many writes and other changes of the File are complete.
	// One more than writes when the kernel was asked; 0 if it never was.
	seen   atomic.Uint32
	wasDue int64 // When it was due, at last.
	since  int64 // Since when it has been due with these times.
	times  [3]syscall.Timespec
}

const (
	// Reads ask the kernel no more often than this, unless a read was due lately.
	accessTick   = int64(4 * time.Millisecond)
	accessLately = int64(time.Second)
	// accessNever: a time that is due for so long is not changed by reads (chattr +A).
	accessNever = int64(10 * time.Second)
)

var started = time.Now()

// isDue asks the kernel, or returns what it has said a moment ago. What is not known is due.
func (a *accessTime) isDue(fd int) bool {
	now, asked := int64(time.Since(started)), a.asked.Load()
	due := a.seen.Load() != a.writes.Load()+1 || a.due.Load()
	if !due && now-asked < accessTick && asked != 0 || !a.mu.TryLock() {
		return due
	}
	defer a.mu.Unlock()
	writes := a.writes.Load()
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) != nil {
		return false
	}
	due = a.judge([3]syscall.Timespec{stat.Atim, stat.Mtim, stat.Ctim}, now, time.Now().Unix())
	if due {
		a.wasDue = now
	}
	// During a second after a read that was due, every read asks.
	if a.asked.Store(now); a.wasDue != 0 && now-a.wasDue < accessLately {
		a.asked.Store(0)
	}
	a.due.Store(due)
	a.seen.Store(writes + 1)
	return due
}

// judge reports whether the access time is due, given a file's times of access, modification and
// change. today is the time of day in seconds.
func (a *accessTime) judge(times [3]syscall.Timespec, now, today int64) bool {
	const day = 24 * 60 * 60
	atime := times[0]
	due := !isAfter(atime, times[1]) || !isAfter(atime, times[2]) || today-int64(atime.Sec) >= day
	switch {
	case !due:
		a.since = 0
	case a.since == 0 || a.times != times:
		a.since = max(now, 1)
	}
	a.times = times
	return due && now-a.since < accessNever
}

// isAfter reports whether a time is later than another one.
func isAfter(a, b syscall.Timespec) bool {
	return a.Sec > b.Sec || a.Sec == b.Sec && a.Nsec > b.Nsec
}
