//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// What one operation costs: on a queue without a device, by plain calls, and from the page cache.

package ringway

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// benchmarkFile opens a file of 16 MiB.
func benchmarkFile(b *testing.B, e *Engine, flag int) *File {
	name := filepath.Join(b.TempDir(), "file")
	must(b, os.WriteFile(name, make([]byte, 16<<20), 0o600))
	f, err := e.OpenFile(name, os.O_RDWR|flag, 0)
	if err != nil {
		b.Skip("skipped: ", err)
	}
	b.Cleanup(func() { f.Close(); e.Close() })
	return f
}

func benchmarkEngine(b *testing.B, o Options, backends ...Backend) *Engine {
	e, err := newEngine(o, backends)
	if err != nil {
		b.Skip("skipped: ", err)
	}
	return e
}

func nullEngine(b *testing.B) *Engine {
	return benchmarkEngine(b, Options{AlwaysRing: true}, backendNull)
}

// cpuTime returns the CPU time of the process, in nanoseconds.
func cpuTime() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// inParallel calls do from so many goroutines for each P, each with a buffer of its own. It also
// reports CPU time, because time depends on what else the machine does.
func inParallel(b *testing.B, goroutines, size int, do func(p []byte, i int) (int, error)) {
	b.ReportAllocs()
	b.SetParallelism(goroutines)
	before := cpuTime()
	b.RunParallel(func(pb *testing.PB) {
		p := NewBuffer(size)
		defer p.Release()
		for i := 0; pb.Next(); i++ {
			if n, err := do(p.Bytes(), i); n != size || err != nil {
				b.Error(n, err)
				return
			}
		}
	})
	b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
}

func BenchmarkNull(b *testing.B) {
	for _, goroutines := range []int{1, 64} {
		b.Run(fmt.Sprint("ReadAt-", goroutines), func(b *testing.B) {
			f := benchmarkFile(b, nullEngine(b), Direct)
			inParallel(b, goroutines, 4096, func(p []byte, i int) (int, error) {
				return f.ReadAt(p, int64(i%4096)<<12)
			})
		})
		b.Run(fmt.Sprint("WriteAt-", goroutines), func(b *testing.B) {
			f := benchmarkFile(b, nullEngine(b), Direct)
			inParallel(b, goroutines, 4096, func(p []byte, i int) (int, error) {
				return f.WriteAt(p, int64(i%4096)<<12)
			})
		})
	}
	b.Run("unaligned", func(b *testing.B) {
		f := benchmarkFile(b, nullEngine(b), Direct)
		inParallel(b, 64, 1000, func(p []byte, i int) (int, error) {
			return f.ReadAt(p, int64(i%4096)<<12+1)
		})
	})
}

func BenchmarkCached(b *testing.B) {
	f := benchmarkFile(b, benchmarkEngine(b, Options{}, BackendURing, BackendThreads), 0)
	inParallel(b, 1, 512, func(p []byte, i int) (int, error) {
		return f.ReadAt(p, int64(i%4096)<<12)
	})
}

func BenchmarkPlainWrite(b *testing.B) {
	f := benchmarkFile(b, benchmarkEngine(b, Options{}, BackendURing, BackendThreads), 0)
	inParallel(b, 1, 512, func(p []byte, i int) (int, error) {
		return f.WriteAt(p, int64(i%4096)<<12)
	})
}
