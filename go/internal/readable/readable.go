//go:build linux

// Package readable waits in the Go poller until a descriptor is readable. It blocks a goroutine,
// but no thread.
package readable

import (
	"os"
	"sync"
	"syscall"
	"time"
)

// Watch is a goroutine that waits for a descriptor.
type Watch struct {
	file *os.File
	done sync.WaitGroup
}

// Start calls ready at once, and then whenever the descriptor has become readable, until ready
// returns true or the watch is closed. Notifications are edge-triggered and may be spurious: ready
// must consume everything that is available. If the poller does not take the descriptor, the error
// is the errno of epoll_ctl(2): ENOSPC beyond fs.epoll.max_user_watches, for example.
//
// The watch owns a duplicate of the descriptor. It makes the open file non-blocking, which affects
// the original descriptor too if it is a pipe or a socket rather than a ring or an eventfd.
func Start(fd int, ready func(fd uintptr) (done bool)) (*Watch, error) {
	own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return nil, errno
	}
	// os.NewFile registers non-blocking descriptors with the poller.
	if err := syscall.SetNonblock(int(own), true); err != nil {
		_ = syscall.Close(int(own))
		return nil, err
	}
	w := &Watch{file: os.NewFile(own, "watched")}
	if w.file.SetReadDeadline(time.Time{}) != nil { // NewFile tells of no error.
		errno := whyNot(int(own))
		_ = w.file.Close()
		return nil, errno
	}
	conn, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		return nil, err
	}
	w.done.Go(func() { _ = conn.Read(ready) })
	return w, nil
}

// whyNot asks the kernel why the poller did not take a descriptor. It is EAGAIN if the kernel takes
// it now.
func whyNot(fd int) syscall.Errno {
	epoll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err == nil {
		event := syscall.EpollEvent{Events: syscall.EPOLLIN}
		err = syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &event)
		_ = syscall.Close(epoll)
	}
	if errno, ok := err.(syscall.Errno); ok {
		return errno
	}
	return syscall.EAGAIN
}

// Close ends the watch. After it returns, ready is not called again.
func (w *Watch) Close() {
	_ = w.file.Close()
	w.done.Wait()
}
