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
			must(t, err)
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

// The same for reads at the current position, on a file system that has positions that large.
func TestReadNearTheLargestPosition(t *testing.T) {
	for _, direct := range []int{0, Direct} {
		e := newOrSkip(t, Options{})
		dir, err := os.MkdirTemp("/dev/shm", "ringway")
		if err != nil {
			t.Skip("skipped: there is no file system in memory: ", err)
		}
		defer os.RemoveAll(dir)
		plain, err := os.Create(dir + "/file")
		must(t, err)
		defer plain.Close()
		f, err := e.OpenFile(plain.Name(), os.O_RDWR|direct, 0)
		if direct != 0 && errors.Is(err, syscall.EINVAL) {
			t.Skip("skipped: no direct I/O in memory before Linux 6.6")
		} else if err != nil {
			t.Fatal(err)
		}
		for _, before := range []int64{1, 100, 5000} {
			for _, length := range []int{1, 100, 600, 9000} {
				p := make([]byte, length)
				for _, file := range []io.Seeker{plain, f} {
					if _, err := file.Seek(math.MaxInt64-before, io.SeekStart); err != nil {
						t.Fatal(err)
					}
				}
				want, wantErr := plain.Read(p)
				n, err := f.Read(p)
				if n != want || (err == io.EOF) != (wantErr == io.EOF) ||
					errors.Is(err, syscall.EINVAL) != errors.Is(wantErr, syscall.EINVAL) {
					t.Errorf("direct %v: read of %d bytes, %d before 2^63-1: %d, %v; package os: "+
						"%d, %v", direct != 0, length, before, n, err, want, wantErr)
				}
			}
		}
		closeAll(t, e, f)
	}
}
