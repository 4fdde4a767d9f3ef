//go:build unix

// Package readable has Go's own poller tell when a descriptor is readable: a goroutine waits for it, and no thread.
package readable

import (
	"os"
	"sync"
	"syscall"
)

// Watch is a goroutine that waits for a descriptor.
type Watch struct {
	file *os.File
	over sync.WaitGroup
}

// Start calls each, at once and then whenever the descriptor has become readable, until it answers true or the watch ends.
// Being told is a hint, and an edge: whoever is called takes everything that is there.
//
// The watch has a descriptor of its own, a duplicate, which becomes non-blocking (and so does the other, if what is below
// is a pipe or a socket rather than a ring or an eventfd).
func Start(fd int, each func(fd uintptr) (last bool)) (*Watch, error) {
	own, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if errno != 0 {
		return nil, errno
	}
	// What is non-blocking when a File is made of it goes to the poller.
	if err := syscall.SetNonblock(int(own), true); err != nil {
		_ = syscall.Close(int(own))
		return nil, err
	}
	w := &Watch{file: os.NewFile(own, "watched")}
	conn, err := w.file.SyscallConn()
	if err != nil {
		_ = w.file.Close()
		return nil, err
	}
	w.over.Go(func() { _ = conn.Read(each) })
	return w, nil
}

// Close ends the watch. When it returns nobody is called any more.
func (w *Watch) Close() {
	_ = w.file.Close()
	w.over.Wait()
}
