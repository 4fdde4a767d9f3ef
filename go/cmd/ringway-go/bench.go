//go:build linux

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"text/tabwriter"
	"time"
	"unsafe"

	ringway "github.com/ringway-io/ringway/go"
)

// A contestant opens the file for random reads.
type contestant struct {
	name string
	open func(name string, direct bool) (subject, error)
}

type subject interface {
	io.ReaderAt
	io.Closer
}

var contestants = []contestant{
	{"ringway", func(name string, direct bool) (subject, error) {
		return ringway.OpenFile(name, flags(direct), 0)
	}},
	{"os", func(name string, direct bool) (subject, error) {
		return os.OpenFile(name, flags(direct), 0)
	}},
	{"os-128", func(name string, direct bool) (subject, error) {
		f, err := os.OpenFile(name, flags(direct), 0)
		return &bounded{f, make(chan struct{}, 128)}, err
	}},
	{"seed", openSeed},
}

func flags(direct bool) int {
	if direct {
		return os.O_RDONLY | syscall.O_DIRECT
	}
	return os.O_RDONLY
}

// bounded is os.File with so many reads at once: more threads than that help no device, and Go ends a program with 10 000.
type bounded struct {
	*os.File
	room chan struct{}
}

func (b *bounded) ReadAt(p []byte, off int64) (int, error) {
	b.room <- struct{}{}
	n, err := b.File.ReadAt(p, off)
	<-b.room
	return n, err
}

// job is one cell of the table.
type job struct {
	direct     bool
	goroutines int
	batch      int
}

func (j job) String() string {
	kind := "cached"
	if j.direct {
		kind = "direct"
	}
	if j.batch > 1 {
		return fmt.Sprintf("%s batch %d", kind, j.batch)
	}
	return fmt.Sprintf("%s %d", kind, j.goroutines)
}

// result of one run.
type result struct {
	ops      float64 // A second.
	cpu      float64 // Microseconds an operation, user and system, of the whole process.
	p50, p99 time.Duration
	threads  int
	allocs   float64
}

func bench(args []string) error {
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	runtimeEach := set.Duration("runtime", 3*time.Second, "of each run")
	repeat := set.Int("repeat", 3, "runs of each; medians are shown")
	direct := set.String("direct", "1,128,1000,100000", "goroutines that read with direct I/O; empty for none")
	cached := set.String("cached", "1,32,1000", "goroutines that read from the page cache; empty for none")
	batch := set.Int("batch", 64, "reads of a batch, from the page cache; 0 for none")
	only := set.String("only", "", "contestants, with commas between them: "+names())
	size := set.Int64("cached-size", 256<<20, "bytes at the beginning of the file that cached reads go to")
	one := set.String("one", "", "used by the command itself")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() != 1 {
		return errors.New("which file? It is only read, and wants to be larger than memory's share of it")
	}
	file := set.Arg(0)
	if *one != "" {
		return runOne(*one, file, *runtimeEach, *size)
	}
	var jobs []job
	for _, n := range numbers(*direct) {
		jobs = append(jobs, job{true, n, 1})
	}
	for _, n := range numbers(*cached) {
		jobs = append(jobs, job{false, n, 1})
	}
	if *batch > 1 {
		jobs = append(jobs, job{false, 1, *batch})
	}
	fmt.Println(ringway.Explain())
	fmt.Printf("%d processors, GOMAXPROCS %d, %s, medians of %d runs of %s, 4 KiB random reads\n\n",
		runtime.NumCPU(), runtime.GOMAXPROCS(0), runtime.Version(), *repeat, *runtimeEach)
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "work\tcontestant\tops/s\tCPU us/op\tp50\tp99\tthreads\tallocs/op\tops ratio\tCPU ratio\t")
	for _, j := range jobs {
		chosen := chosenFor(j, *only)
		runs := make([][]result, len(chosen))
		for range *repeat { // In turn, so that what else the machine does falls on all of them.
			for i, c := range chosen {
				r, err := runChild(c, j, file, *runtimeEach, *size)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", c.name, j, err)
				}
				runs[i] = append(runs[i], r)
			}
		}
		var base result
		for i := range chosen {
			if chosen[i].name == "os" || base.ops == 0 {
				base = median(runs[i])
			}
		}
		for i, c := range chosen {
			m := median(runs[i])
			fmt.Fprintf(out, "%s\t%s\t%.0f\t%.2f\t%s\t%s\t%d\t%.2f\t%.2f\t%.2f\t\n", j, c.name, m.ops, m.cpu,
				m.p50.Round(100*time.Nanosecond), m.p99.Round(100*time.Nanosecond), m.threads, m.allocs, m.ops/base.ops, m.cpu/base.cpu)
		}
		out.Flush()
	}
	return nil
}

func names() string {
	var all []string
	for _, c := range contestants {
		all = append(all, c.name)
	}
	return strings.Join(all, ",")
}

// chosenFor leaves out os.File where Go would end the program for want of threads.
func chosenFor(j job, only string) []contestant {
	var chosen []contestant
	for _, c := range contestants {
		switch {
		case only != "" && !slices.Contains(strings.Split(only, ","), c.name):
		case c.name == "os" && j.direct && j.goroutines > 5000:
		case c.name == "os-128" && (!j.direct || j.goroutines <= 128):
		case c.name == "seed" && j.batch > 1:
		default:
			chosen = append(chosen, c)
		}
	}
	return chosen
}

func numbers(list string) []int {
	var all []int
	for part := range strings.SplitSeq(list, ",") {
		if n, err := strconv.Atoi(part); err == nil && n > 0 {
			all = append(all, n)
		}
	}
	return all
}

func median(runs []result) result {
	field := func(of func(result) float64) float64 {
		values := make([]float64, len(runs))
		for i, r := range runs {
			values[i] = of(r)
		}
		slices.Sort(values)
		return values[len(values)/2]
	}
	return result{
		ops:     field(func(r result) float64 { return r.ops }),
		cpu:     field(func(r result) float64 { return r.cpu }),
		p50:     time.Duration(field(func(r result) float64 { return float64(r.p50) })),
		p99:     time.Duration(field(func(r result) float64 { return float64(r.p99) })),
		threads: int(field(func(r result) float64 { return float64(r.threads) })),
		allocs:  field(func(r result) float64 { return r.allocs }),
	}
}

// runChild is one run in a process of its own, so that its CPU time is all of it and nobody's threads are left over.
func runChild(c contestant, j job, file string, each time.Duration, size int64) (result, error) {
	self, err := os.Executable()
	if err != nil {
		return result{}, err
	}
	cmd := exec.Command(self, "bench", "-one", fmt.Sprintf("%s,%t,%d,%d", c.name, j.direct, j.goroutines, j.batch),
		"-runtime", each.String(), "-cached-size", strconv.FormatInt(size, 10), file)
	cmd.Stderr = os.Stderr
	text, err := cmd.Output()
	if err != nil {
		return result{}, err
	}
	var r result
	_, err = fmt.Sscan(string(text), &r.ops, &r.cpu, &r.p50, &r.p99, &r.threads, &r.allocs)
	return r, err
}

const block = 4096

func runOne(what, file string, each time.Duration, size int64) error {
	fields := strings.Split(what, ",")
	if len(fields) != 4 {
		return errors.New("-one is for the command itself")
	}
	var j job
	j.direct = fields[1] == "true"
	j.goroutines, _ = strconv.Atoi(fields[2])
	j.batch, _ = strconv.Atoi(fields[3])
	at := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == fields[0] })
	if at < 0 {
		return errors.New("no contestant is called " + fields[0])
	}
	debug.SetMaxThreads(50000)
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	blocks := info.Size() / block
	if !j.direct {
		blocks = min(blocks, size/block)
		if err := warm(file, blocks*block); err != nil {
			return err
		}
	}
	if blocks == 0 {
		return errors.New("the file is smaller than a block")
	}
	f, err := contestants[at].open(file, j.direct)
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := measure(f, j, blocks, each)
	if err != nil {
		return err
	}
	fmt.Println(r.ops, r.cpu, int64(r.p50), int64(r.p99), r.threads, r.allocs)
	return nil
}

// warm has the page cache hold what cached reads go to.
func warm(file string, size int64) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(io.Discard, io.NewSectionReader(f, 0, size))
	return err
}

func aligned(n int) []byte {
	whole := make([]byte, n+block)
	skip := -int(uintptr(unsafe.Pointer(&whole[0]))) & (block - 1)
	return whole[skip : skip+n]
}

// reader does its reads until it is told to stop.
func measure(f subject, j job, blocks int64, each time.Duration) (result, error) {
	var stop atomic.Bool
	var counting atomic.Bool
	var ready, done sync.WaitGroup
	counts := make([]struct {
		ops     int64
		latency histogram
		err     error
		_       [64]byte
	}, min(j.goroutines, 64)) // Goroutines share them, each with an atomic only now and then.
	begin := make(chan struct{})
	var failure atomic.Pointer[error]
	ops := new([64]paddedCounter)
	for g := range j.goroutines {
		ready.Add(1)
		done.Add(1)
		go func() {
			defer done.Done()
			random := rand.New(rand.NewPCG(uint64(g), 7))
			slot := g % len(ops)
			latency := &counts[g%len(counts)].latency
			memory := aligned(block * j.batch)
			batch := make([]ringway.Transfer, j.batch)
			ready.Done()
			<-begin
			for i := 0; !stop.Load(); i++ {
				var start time.Time
				timed := i%8 == 0
				if timed {
					start = time.Now()
				}
				var err error
				if j.batch == 1 {
					_, err = f.ReadAt(memory, random.Int64N(blocks)*block)
				} else {
					err = readBatch(f, memory, batch, random, blocks)
				}
				if err != nil {
					failed := err
					failure.CompareAndSwap(nil, &failed)
					return
				}
				ops[slot].Add(int64(j.batch))
				if timed && counting.Load() {
					latency.add(time.Since(start))
				}
			}
		}()
	}
	ready.Wait()
	close(begin)
	total := func() (n int64) {
		for i := range ops {
			n += ops[i].Load()
		}
		return n
	}
	time.Sleep(min(each/4, time.Second)) // What is made once is not counted.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	counting.Store(true)
	cpu, count, start := cpuTime(), total(), time.Now()
	time.Sleep(each)
	took, count, cpu := time.Since(start), total()-count, cpuTime()-cpu
	counting.Store(false)
	threads := threads()
	runtime.ReadMemStats(&after)
	stop.Store(true)
	done.Wait()
	if err := failure.Load(); err != nil {
		return result{}, *err
	}
	var latency histogram
	for i := range counts {
		latency.merge(&counts[i].latency)
	}
	return result{
		ops: float64(count) / took.Seconds(), cpu: float64(cpu.Nanoseconds()) / 1e3 / float64(max(count, 1)),
		p50: latency.quantile(0.5), p99: latency.quantile(0.99), threads: threads,
		allocs: float64(after.Mallocs-before.Mallocs) / float64(max(count, 1)),
	}, nil
}

func readBatch(f subject, memory []byte, batch []ringway.Transfer, random *rand.Rand, blocks int64) error {
	for i := range batch {
		batch[i].P = memory[i*block : (i+1)*block]
		batch[i].Off = random.Int64N(blocks) * block
	}
	if r, ok := f.(*ringway.File); ok {
		return r.ReadBatch(batch)
	}
	for i := range batch {
		if _, err := f.ReadAt(batch[i].P, batch[i].Off); err != nil {
			return err
		}
	}
	return nil
}

type paddedCounter struct {
	atomic.Int64
	_ [56]byte
}

// histogram of latencies: eight steps to each doubling.
type histogram struct {
	counts [512]atomic.Int64
}

func (h *histogram) add(d time.Duration) { h.counts[stepOf(d)].Add(1) }

func stepOf(d time.Duration) int {
	n := uint64(max(d, 1))
	double := 0
	for n>>double >= 16 {
		double++
	}
	return min(double*8+int(n>>double), 511)
}

func (h *histogram) merge(other *histogram) {
	for i := range h.counts {
		h.counts[i].Add(other.counts[i].Load())
	}
}

func (h *histogram) quantile(q float64) time.Duration {
	var total, seen int64
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	for i := range h.counts {
		if seen += h.counts[i].Load(); float64(seen) >= q*float64(total) && seen > 0 {
			if i < 16 {
				return time.Duration(i)
			}
			double := (i - 8) / 8
			return time.Duration(uint64(i-double*8) << double)
		}
	}
	return 0
}

// cpuTime is user and system time of the process, all its threads, those that have ended too.
func cpuTime() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// threads of the process, with the kernel's own that work for it.
func threads() int {
	entries, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return 0
	}
	return len(entries)
}
