//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway_test

// Engines under a limit on the size of files (RLIMIT_FSIZE).

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/ringway"
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
	for _, backend := range backends {
		e, err := ringway.New(ringway.Options{Backend: backend})
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

// No backend needs to write a file, so the limit makes none of them unavailable.
func TestBackendsWriteNoFile(t *testing.T) {
	for _, ignored := range []string{"", "yes"} {
		for _, user := range []string{"", "nobody"} {
			out := runChild(t, "smallFiles", func(cmd *exec.Cmd) {
				if user != "" && os.Getuid() == 0 {
					runAsNobody(t, t.TempDir(), cmd)
				}
			}, "IGNORED="+ignored, ringway.BackendEnv+"=")
			if want := "uring\nkaio\nthreads\n"; !strings.HasSuffix(out, want) {
				t.Errorf("SIGXFSZ ignored %q, user %q: %s", ignored, user, out)
			}
		}
	}
}
