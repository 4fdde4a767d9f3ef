//go:build linux

// Tests which descriptors can be watched.

package readable_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/readable"
	"github.com/ringway-io/ringway/go/internal/tests"
)

func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	tests.Must(t, err)
	defer r.Close()
	defer w.Close()
	called := make(chan struct{}, 2)
	watch := tests.Get(readable.Start(int(r.Fd()), func(fd uintptr) (done bool) {
		called <- struct{}{}
		n, _ := syscall.Read(int(fd), make([]byte, 1))
		return n == 1
	}))(t)
	defer watch.Close()
	<-called // At once.
	tests.Get(w.Write([]byte("x")))(t)
	<-called
}

// A descriptor that the poller does not take is refused: otherwise nobody would learn that it is
// readable.
func TestRefusedByPoller(t *testing.T) {
	f := tests.Get(os.Open("/proc/self/exe"))(t) // epoll_ctl(2) takes no regular file.
	defer f.Close()
	_, err := readable.Start(int(f.Fd()), func(uintptr) bool { return false })
	tests.Expect(t, err == syscall.EPERM, "%v, not EPERM", err)
}
