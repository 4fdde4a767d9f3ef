//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// What one operation costs: on a queue without a device, by plain calls, and from the page cache.

package ringway

import (
	"os"
	"syscall"
	"testing"
)

// cpuTime returns the CPU time of the process, in nanoseconds.
func cpuTime() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func BenchmarkTransfer(b *testing.B) {
	null := []Backend{backendNull}
	real := []Backend{BackendURing, BackendThreads}
	canEnd := func(f *File, p []byte, off int64) (int, error) {
		return f.ReadAtContext(b.Context(), p, off)
	}
	for _, c := range []struct {
		name             string
		backends         []Backend
		goroutines, flag int
		size             int
		skew             int64
		do               func(f *File, p []byte, off int64) (int, error)
	}{
		{"null/ReadAt-1", null, 1, Direct, 4096, 0, (*File).ReadAt},
		{"null/ReadAt-64", null, 64, Direct, 4096, 0, (*File).ReadAt},
		{"null/WriteAt-1", null, 1, Direct, 4096, 0, (*File).WriteAt},
		{"null/WriteAt-64", null, 64, Direct, 4096, 0, (*File).WriteAt},
		{"null/unaligned-64", null, 64, Direct, 1000, 1, (*File).ReadAt},
		{"cached", real, 1, 0, 512, 0, (*File).ReadAt},
		{"cached, with a context", real, 1, 0, 512, 0, canEnd},
		{"plain write", real, 1, 0, 512, 0, (*File).WriteAt},
	} {
		b.Run(c.name, func(b *testing.B) {
			e, err := newEngine(Options{AlwaysRing: c.flag == Direct}, c.backends)
			if err != nil {
				b.Skip("skipped: ", err)
			}
			b.Cleanup(func() { e.Close() })
			f := openIn(b, e, make([]byte, 16<<20), os.O_RDWR|c.flag)
			b.ReportAllocs()
			b.SetParallelism(c.goroutines)
			before := cpuTime()
			b.RunParallel(func(pb *testing.PB) {
				p := NewBuffer(c.size)
				defer p.Release()
				for i := 0; pb.Next(); i++ {
					n, err := c.do(f, p.Bytes(), int64(i%4096)<<12+c.skew)
					if n != c.size || err != nil {
						b.Error(n, err)
						return
					}
				}
			})
			// Time depends on what else the machine does.
			b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
		})
	}
}
