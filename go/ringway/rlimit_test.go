//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Engines under a limit on the size of files (RLIMIT_FSIZE).

package ringway

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/ring"
)

// smallFiles runs in a child process that may not write files, with SIGXFSZ ignored or as Go
// handles it.
func smallFiles() error {
	if os.Getenv("IGNORED") != "" {
		signal.Ignore(syscall.SIGXFSZ)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{}); err != nil {
		return err
	}
	for _, backend := range testBackends {
		e, err := New(Options{Backend: backend})
		if err != nil {
			return err
		}
		f, err := e.Open("/proc/self/exe")
		if err != nil {
			return err
		}
		if n, err := f.ReadAt(make([]byte, 5000), 100); n != 5000 || err != nil {
			return fmt.Errorf("%s: read %d, %v", backend, n, err)
		}
		if err := errors.Join(f.Close(), e.Close()); err != nil {
			return err
		}
		fmt.Println(backend)
	}
	return nil
}

const (
	rlimitMemlock = 8
	memlock       = 8 << 20
)

// manyRings runs in a child process of an ordinary user: it makes rings as fast as it closes them.
// The kernel gives the memory of a closed ring back some milliseconds later.
func manyRings() error {
	limit := syscall.Rlimit{Cur: memlock, Max: memlock}
	if err := syscall.Setrlimit(rlimitMemlock, &limit); err != nil {
		return err
	}
	for range 100 {
		r, err := ring.New(ring.Options{Entries: 4096})
		if err != nil {
			return err
		}
		for _, refusal := range r.Refusals() {
			if refusal.Errno == syscall.ENOMEM {
				return refusal
			}
		}
		if err := r.Close(); err != nil {
			return err
		}
	}
	return nil
}

func TestRingsOfAnOrdinaryUser(t *testing.T) {
	if r, err := ring.New(ring.Options{}); err != nil {
		skip.Test(t, "no io_uring: ", err)
	} else if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(rlimitMemlock, &limit); err != nil || limit.Max < memlock {
		skip.Test(t, "8 MiB of memory may not be locked here: ", limit, err)
	}
	runChild(t, "rings", func(cmd *exec.Cmd) {
		if os.Getuid() == 0 {
			runAsNobody(t, t.TempDir(), cmd)
		}
	})
}

// No backend needs to write a file, so the limit makes none of them unavailable.
func TestBackendsWriteNoFile(t *testing.T) {
	for _, ignored := range []string{"", "yes"} {
		for _, user := range []string{"", "nobody"} {
			out := runChild(t, "smallFiles", func(cmd *exec.Cmd) {
				if user != "" && os.Getuid() == 0 {
					runAsNobody(t, t.TempDir(), cmd)
				}
			}, "IGNORED="+ignored, BackendEnv+"=")
			if want := "uring\nkaio\nthreads\n"; !strings.HasSuffix(out, want) {
				t.Errorf("SIGXFSZ ignored %q, user %q: %s", ignored, user, out)
			}
		}
	}
}
