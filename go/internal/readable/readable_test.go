//go:build linux

// Tests which descriptors can be watched.

package readable_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/readable"
)

func TestPipe(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	called := make(chan struct{}, 2)
	watch, err := readable.Start(int(r.Fd()), func(fd uintptr) (done bool) {
		called <- struct{}{}
		n, _ := syscall.Read(int(fd), make([]byte, 1))
		return n == 1
	})
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	<-called // At once.
	if _, err := w.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-called
}

// A descriptor that the poller does not take is refused: otherwise nobody would learn that it is
// readable.
func TestRefusedByPoller(t *testing.T) {
	f, err := os.Open("/proc/self/exe") // epoll_ctl(2) takes no regular file.
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	watch, err := readable.Start(int(f.Fd()), func(uintptr) bool { return false })
	if err != syscall.EPERM {
		t.Errorf("%v, not EPERM", err)
	}
	if err == nil {
		watch.Close()
	}
}
