// Offsets and lengths at the limits of their types.

package ringway

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"syscall"
	"testing"
)

// Near the largest offset, a direct read says what a buffered one of package os says: the end of
// the file up to there, EINVAL for a range that ends beyond.
func TestReadsNearTheLargestOffset(t *testing.T) {
	for _, backend := range testBackends {
		for _, direct := range []int{0, Direct} {
			e := newOrSkip(t, Options{Backend: backend})
			f := openIn(t, e, make([]byte, 10_000), os.O_RDWR|direct)
			plain, err := os.Open(f.Name())
			if err != nil {
				t.Fatal(err)
			}
			for _, before := range []int64{0, 1, 100, 511, 512, 4095, 4096, 5000, 3 << 20} {
				for _, length := range []int{1, 10, 512, 600, 4096, 9000, 2 << 20, 4 << 20} {
					off := math.MaxInt64 - before
					p := make([]byte, length)
					want, wantErr := plain.ReadAt(p, off)
					ctx, cancel := context.WithCancel(t.Context())
					for what, read := range map[string]func() (int, error){
						"ReadAt": func() (int, error) { return f.ReadAt(p, off) },
						"ReadAtContext": func() (int, error) {
							return f.ReadAtContext(ctx, p, off)
						},
					} {
						n, err := read()
						if n != want || (err == io.EOF) != (wantErr == io.EOF) ||
							errors.Is(err, syscall.EINVAL) != errors.Is(wantErr, syscall.EINVAL) {
							t.Errorf("%s, direct %v: %s of %d bytes, %d before 2^63-1: %d, %v; "+
								"package os: %d, %v", backend, direct != 0, what, length, before, n,
								err, want, wantErr)
						}
					}
					cancel()
				}
			}
			plain.Close()
			closeAll(t, e, f)
		}
	}
}
