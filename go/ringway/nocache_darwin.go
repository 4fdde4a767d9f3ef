// Transfers past the page cache of macOS.

package ringway

import (
	"errors"
	"os"
	"syscall"
)

// bypassCache sets F_NOCACHE; see fcntl(2) of macOS.
func bypassCache(file *os.File) error {
	conn, err := file.SyscallConn()
	if err != nil {
		return err
	}
	var errno syscall.Errno
	err = conn.Control(func(fd uintptr) {
		_, _, errno = syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_NOCACHE, 1)
	})
	if errno != 0 {
		err = errors.Join(err, errno)
	}
	return err
}
