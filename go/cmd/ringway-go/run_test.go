//go:build linux

// Single runs: each contestant reads what it was asked to, and wrong results are found.

package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func orderFor(w workload, name string, t *target) order {
	return order{
		Workload: w, Contestant: name, Runtime: 20 * time.Millisecond, Ramp: 20 * time.Millisecond,
		Seed:   5,
		Blocks: t.size / block, Numbered: true,
	}
}

func scratch(t *testing.T, size int64) *target {
	t.Helper()
	created := get(createScratch(t.TempDir(), size))(t)
	t.Cleanup(func() { created.file.Close() })
	return created
}

// refusedHere reports whether a failure is one that a machine may cause. It is an error where CI is
// set.
func refusedHere(t *testing.T, c contestant, failure string) bool {
	if !c.rings || !strings.Contains(failure, "io_uring") &&
		!strings.Contains(failure, "fixed buffers") {
		return false
	}
	expect(t, os.Getenv("CI") == "", "%v", failure)
	t.Log("skipped: " + failure)
	return true
}

func TestEveryContestantReads(t *testing.T) {
	file := scratch(t, 1<<20)
	for _, c := range contestants {
		for _, kind := range c.kinds {
			w := workload{kind, 9}
			if (kind == ioDirect || kind == ioNull) && !file.direct {
				continue
			}
			for _, fixed := range []bool{false, true} {
				o := orderFor(w, c.name, file)
				o.FixedBuffers = fixed && c.name == "ringway"
				got, failure, err := runChild(file.file, o)
				wantCalls := c.name != "floor" && kind != ioCommit
				if failure != "" && refusedHere(t, c, failure) {
					continue
				}
				expect(t, err == nil && failure == "" && got.Requests >= 1 &&
					(got.Calls != nil) == wantCalls && (kind != ioBatch || got.Requests%9 == 0),
					"%v, %s: %q, %v, %+v", w, c.name, failure, err, got)
			}
		}
	}
}

func TestAFailedRunHasAReason(t *testing.T) {
	file, wrong := scratch(t, 1<<20), scratch(t, 1<<20)
	get(wrong.file.WriteAt(make([]byte, 1<<20), 0))(t)
	beyond := orderFor(workload{ioCached, 1}, "os", file)
	beyond.Blocks *= 1000 // Beyond the end of the file.
	for _, run := range []struct {
		file  *target
		order order
		why   string
	}{
		{file, orderFor(workload{ioCached, 1}, "nobody", file), "nobody"},
		{file, beyond, "got 0 of"},
		{wrong, orderFor(workload{ioCached, 2}, "os", wrong), "got the bytes of offset 0"},
		{wrong, orderFor(workload{ioBatch, 3}, "os", wrong), "got the bytes of offset 0"},
		{wrong, orderFor(workload{ioDirect, 3}, "bare", wrong), "got the bytes of offset 0"},
	} {
		if run.order.Workload.IO == ioDirect && !file.direct {
			continue
		}
		c, _ := contestantNamed(run.order.Contestant)
		_, failure, err := runChild(run.file.file, run.order)
		if err != nil || !strings.Contains(failure, run.why) && !refusedHere(t, c, failure) {
			t.Errorf("%v: %q, %v", run.order, failure, err)
		}
	}
}

// No two goroutines share memory, also after garbage collections.
func TestBuffersStayValid(t *testing.T) {
	file := scratch(t, 1<<20)
	name := fmt.Sprintf("/proc/self/fd/%d", file.file.Fd())
	for _, c := range contestants {
		s, err := c.open(setup{file: name, flag: os.O_RDONLY, goroutines: 20, bufferBlocks: 1})
		if err != nil {
			expect(t, refusedHere(t, c, err.Error()), "%s: %v", c.name, err)
			continue
		}
		seen := map[*byte]bool{}
		for range 20 {
			p, err := s.buffer(block)
			require(t, err == nil && len(p) == block && !seen[&p[0]],
				"%s: %d bytes, returned before: %t, %v", c.name, len(p), seen[&p[0]], err)
			seen[&p[0]] = true
			for range 3 {
				runtime.GC()
				time.Sleep(time.Millisecond) // Cleanups run concurrently.
			}
		}
		runtime.KeepAlive(s)
	}
}

func TestCommittedRecordsAreInTheFile(t *testing.T) {
	for _, c := range contestants {
		if !slices.Contains(c.kinds, ioCommit) {
			continue
		}
		file := scratch(t, 16*block)
		got, failure, err := runChild(file.file, orderFor(workload{ioCommit, 4}, c.name, file))
		require(t, err == nil && failure == "", "%s: %q, %v", c.name, failure, err)
		content := make([]byte, 16*block)
		get(file.file.ReadAt(content, 0))(t)
		written := 0
		for at := range 16 {
			p := content[at*block:][:block]
			expect(t, binary.LittleEndian.Uint64(p) == uint64(at),
				"%s: block %d has the number of another", c.name, at)
			if bytes.Equal(p[8:], make([]byte, block-8)) {
				written++
			}
		}
		// The last blocks stay free if a commit does not fit.
		expect(t, int64(written) >= min(got.Requests, 12),
			"%s: %d blocks were written by %d records", c.name, written, got.Requests)
	}
}

// noFile reads nothing.
type noFile struct{ memory }

func (*noFile) ReadAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (*noFile) submissions() submissions              { return submissions{} }

func TestMeasureCountsItsWindow(t *testing.T) {
	var all, late atomic.Int64
	got, _, err := measure(&noFile{}, 100, true, time.Millisecond, 20*time.Millisecond,
		func(i int) (step, error) {
			first := true
			return func(ramp bool) error {
				all.Add(1)
				if first && i == 7 {
					time.Sleep(30 * time.Millisecond) // The ramp waits for this goroutine.
					if !ramp {
						late.Add(1)
					}
				}
				first = false
				time.Sleep(100 * time.Microsecond)
				return nil
			}, nil
		})
	expect(t, err == nil && got.Requests >= 1 && got.Requests < all.Load() &&
		got.Max >= 100*time.Microsecond && got.Real >= 20*time.Millisecond, "%d of %d, %+v, %v",
		got.Requests, all.Load(), got, err)
	expect(t, late.Load() == 0, "the window opened before every goroutine had completed a request")
	expect(t, got.Threads >= 1 && got.P50 <= got.P99 && got.P99 <= got.P999 &&
		got.P999 <= got.P9999 && got.P9999 <= got.Max, "%+v", got)
}

// The scheduler must not delay the window against the usage.
func TestUsageIsThatOfTheWindow(t *testing.T) {
	file := scratch(t, 1<<20)
	o := orderFor(workload{ioCached, 1000}, "os", file)
	o.Ramp = 100 * time.Millisecond
	for range 5 {
		got, failure, err := runChild(file.file, o)
		require(t, err == nil && failure == "", "%v, %v", failure, err)
		most := time.Duration(runtime.NumCPU())*got.Real + 200*time.Millisecond
		expect(t, got.cpu() <= most, "%v of CPU time in %v", got.cpu(), got.Real)
	}
}

func TestAWindowStaysOpenForOneRequest(t *testing.T) {
	slow := func(bool) error { time.Sleep(20 * time.Millisecond); return nil }
	got, _, err := measure(&noFile{}, 1, true, 0, time.Millisecond,
		func(int) (step, error) { return slow, nil })
	expect(t, err == nil && got.Requests == 1 && got.Real >= time.Millisecond &&
		got.Max >= 20*time.Millisecond, "%+v, %v", got, err)
}

func TestMeasureReturnsErrors(t *testing.T) {
	broken := errors.New("broken")
	for _, inRamp := range []bool{true, false} {
		_, _, err := measure(&noFile{}, 4, true, time.Millisecond, time.Hour,
			func(i int) (step, error) {
				return func(ramp bool) error {
					if i == 2 && ramp == inRamp {
						return broken
					}
					return nil
				}, nil
			})
		expect(t, err == broken, "during the ramp %t: %v", inRamp, err)
	}
	_, _, err := measure(&noFile{}, 4, true, 0, 0, func(int) (step, error) { return nil, broken })
	expect(t, err == broken, "%v", err)
}

func TestShortReadsAreErrors(t *testing.T) {
	p := make([]byte, 8)
	var o order
	expect(t, o.check(8, nil, p, 0, true) == nil && o.check(8, io.EOF, p, 0, true) == nil &&
		o.check(7, io.EOF, p, 0, true) != nil &&
		o.check(0, os.ErrClosed, p, 0, true) == os.ErrClosed,
		"a short or failed read passes the check")
}
