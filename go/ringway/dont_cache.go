// Transfers that leave no pages in the page cache: RWF_DONTCACHE of preadv2(2).

package ringway

import (
	"sync/atomic"
	"syscall"

	"github.com/ringway-io/ringway/go/internal/refusal"
)

const rwfDontCache = 0x80

// dontCache is whether the transfers of a file leave no pages.
type dontCache struct {
	on       atomic.Bool
	errno    atomic.Uint32 // With which the kernel has refused the flag; 0 if it has not.
	accepted atomic.Bool   // A transfer with the flag has succeeded: no error is due to it.
}

// flags returns the RWF flags of the next transfer.
func (d *dontCache) flags() uint32 {
	if d.on.Load() && d.errno.Load() == 0 {
		return rwfDontCache
	}
	return 0
}

// mayRefuse reports whether the kernel may have refused a transfer because of the flag: the file
// system or a kernel before 6.14 (EOPNOTSUPP), a kernel before 4.13 (EINVAL), or a filter. The
// errno may have another cause: the result of the transfer without the flag decides.
//
//lint:ignore U1000 Systems without rings do not use it.
func (d *dontCache) mayRefuse(errno syscall.Errno) bool {
	if d.accepted.Load() {
		return false
	}
	switch errno {
	case syscall.EOPNOTSUPP, syscall.EINVAL, syscall.ENOSYS, syscall.EPERM:
		return true
	}
	return false
}

// refused records that a transfer has succeeded without the flag, and failed with it.
//
//lint:ignore U1000 Systems without rings do not use it.
func (d *dontCache) refused(errno syscall.Errno) { d.errno.Store(uint32(errno)) }

// succeeded records that a transfer with the flag has succeeded.
//
//lint:ignore U1000 Systems without rings do not use it.
func (d *dontCache) succeeded() {
	if !d.accepted.Load() { // Written once, since all threads share the cache line.
		d.accepted.Store(true)
	}
}

// SetDontCache makes the reads and writes of f that begin from now on leave no pages of their own
// in the page cache, or leave them as usual, which is the default: RWF_DONTCACHE (kernel 6.14; ext4
// and XFS). It is for a scan or a backup beside data that should stay cached.
//
// What a transfer brings into the page cache is dropped: after a read at once, after a write when
// the device has it, which the kernel starts at once. Pages that were cached before stay, and reads
// find them there. A write is as durable as without it. [File.ReadFrom] and [File.WriteTo] then
// copy through the program, since what the kernel copies leaves pages; so do [io.CopyN] and package
// net/http, which [File.SyscallConn] refuses the descriptor. It does nothing to direct I/O, and to
// files that are no regular files or block devices.
//
// Where the kernel or the file system refuses it, transfers are made without it:
// [File.DontCacheRefusal] has the reason.
func (f *File) SetDontCache(on bool) {
	if f != nil {
		f.dontCache.on.Store(on)
	}
}

// DontCacheRefusal returns why transfers of f leave pages in the page cache despite
// [File.SetDontCache]; nil if they do not, as far as is known: the first transfer finds out.
func (f *File) DontCacheRefusal() *Refusal {
	if f == nil || !f.dontCache.on.Load() || f.direct {
		return nil
	}
	if errno := syscall.Errno(f.dontCache.errno.Load()); errno != 0 || !transferFlags {
		return unavailable(refusal.DontCache, errno)
	}
	return nil
}

// rwFlags returns the RWF flags of the next transfer of the file.
func (f *File) rwFlags() uint32 {
	if f.direct || !f.storage || !transferFlags {
		return 0
	}
	return f.dontCache.flags()
}

// dropsPages reports whether transfers of the file leave no pages, as far as is known.
func (f *File) dropsPages() bool { return f.rwFlags() != 0 }

// withFlags makes a transfer with the file's flags, and again without them if that is what the
// kernel may refuse.
//
//lint:ignore U1000 Systems without rings do not use it.
func (f *File) withFlags(transfer func(flags uint32) (int, error)) (int, error) {
	flags := f.rwFlags()
	n, err := transfer(flags)
	if flags != 0 && err == nil {
		f.dontCache.succeeded()
	}
	errno, ok := err.(syscall.Errno)
	if flags == 0 || n > 0 || !ok || !f.dontCache.mayRefuse(errno) {
		return n, err
	}
	n, err = transfer(0)
	if err == nil {
		f.dontCache.refused(errno)
	}
	return n, err
}
