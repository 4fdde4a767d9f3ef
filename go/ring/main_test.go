//go:build linux

// Examples have no way to skip themselves: where io_uring is refused, none runs.

package ring_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/ring"
)

func TestMain(m *testing.M) {
	flag.Parse()
	r, err := ring.New(ring.Options{})
	if err == nil {
		if err := r.Close(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		// The memory of rings that tests have closed comes back late, and may be too little until
		// then.
		const memlock, enough = 8, 1 << 20
		var limit syscall.Rlimit
		if syscall.Getrlimit(memlock, &limit) == nil && limit.Cur < enough && os.Geteuid() != 0 {
			err = errors.New("less than 1 MiB may be locked (ulimit -l)")
		}
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "" || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS):
		fmt.Println("skipped: examples:", err)
		_ = flag.Set("test.skip", "^Example")
	}
	os.Exit(m.Run())
}
