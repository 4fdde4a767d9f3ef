//go:build linux

package ring_test

// Examples cannot be skipped one by one: where io_uring is refused, none is run.

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
	switch {
	case err == nil:
		if err := r.Close(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	case os.Getenv("CI") == "" || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS):
		fmt.Println("skipped: examples:", err)
		_ = flag.Set("test.skip", "^Example")
	}
	os.Exit(m.Run())
}
