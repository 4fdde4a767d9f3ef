//go:build linux

package main

// Single runs: who competes reads what was asked for, and a contestant that did not would be found out.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func orderFor(w work, name string, t *target) order {
	return order{Work: w, Contestant: name, Runtime: 20 * time.Millisecond, Ramp: 20 * time.Millisecond, Seed: 5, Blocks: t.size / block, Numbered: true}
}

func scratch(t *testing.T, size int64) *target {
	made, err := makeScratch(t.TempDir(), size, func(int64, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { made.file.Close() })
	return made
}

// Refusals that a machine may have reason for; everything else is a failure.
func allowed(t *testing.T, c contestant, refused string) bool {
	if c.helped && (strings.Contains(refused, "io_uring") || strings.Contains(refused, "fixed buffers")) {
		if os.Getenv("CI") != "" {
			t.Error(refused)
		}
		t.Log("skipped: " + refused)
		return true
	}
	return false
}

func TestContestantsReadWhatTheyAreAskedFor(t *testing.T) {
	made := scratch(t, 1<<20)
	for _, c := range contestants {
		for _, kind := range c.kinds {
			w := work{kind, 9}
			if (kind == ioDirect || kind == ioNull) && !made.direct {
				t.Log("skipped: no direct I/O here")
				continue
			}
			got, refused, err := runChild(made.file, orderFor(w, c.name, made))
			if err != nil || refused != "" && !allowed(t, c, refused) {
				t.Errorf("%v, %s: %q, %v", w, c.name, refused, err)
			} else if refused == "" && (got.Requests < 1 || (got.Calls == nil) != (c.name == "null" || c.name == "floor" || kind == ioCommit)) {
				t.Errorf("%v, %s: %+v", w, c.name, got)
			} else if refused == "" && kind == ioBatch && got.Requests%9 != 0 {
				t.Errorf("%v, %s: %d blocks are no batches of 9", w, c.name, got.Requests)
			}
		}
	}
}

func TestWrongBytesAreFound(t *testing.T) {
	made := scratch(t, 1<<20)
	if _, err := made.file.WriteAt(make([]byte, 1<<20), 0); err != nil {
		t.Fatal(err)
	}
	for _, w := range []work{{ioCached, 2}, {ioBatch, 3}} {
		_, refused, err := runChild(made.file, orderFor(w, "os", made))
		if err != nil || !strings.Contains(refused, "wrong bytes") {
			t.Errorf("%v: %q, %v", w, refused, err)
		}
	}
}

func TestARunThatCannotBeSaysWhy(t *testing.T) {
	made := scratch(t, 1<<20)
	o := orderFor(work{ioCached, 1}, "nobody", made)
	if _, refused, err := runChild(made.file, o); err != nil || !strings.Contains(refused, "nobody") {
		t.Error(refused, err)
	}
	// More than the file has.
	o = orderFor(work{ioCached, 1}, "os", made)
	o.Blocks *= 1000
	if _, refused, err := runChild(made.file, o); err != nil || !strings.Contains(refused, "got 0") {
		t.Error(refused, err)
	}
}

// No two goroutines have the same memory, also after collections.
func TestBuffersAreKept(t *testing.T) {
	made := scratch(t, 1<<20)
	for _, c := range contestants {
		s, err := c.open(setup{fmt.Sprintf("/proc/self/fd/%d", made.file.Fd()), os.O_RDONLY, 20, 1})
		if err != nil {
			if !allowed(t, c, err.Error()) {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		seen := map[*byte]bool{}
		for range 20 {
			p, err := s.buffer(block)
			if err != nil || len(p) != block || seen[&p[0]] {
				t.Fatalf("%s: %d bytes, lent before: %t, %v", c.name, len(p), seen[&p[0]], err)
			}
			seen[&p[0]] = true
			for range 3 {
				runtime.GC()
				time.Sleep(time.Millisecond) // Cleanups run beside it.
			}
		}
		runtime.KeepAlive(s)
	}
}

// What is committed is in the file, one record behind the other.
func TestCommit(t *testing.T) {
	for _, c := range contestants {
		if c.kinds[len(c.kinds)-1] != ioCommit {
			continue
		}
		made := scratch(t, 16*block)
		got, refused, err := runChild(made.file, orderFor(work{ioCommit, 4}, c.name, made))
		if err != nil || refused != "" {
			t.Errorf("%s: %q, %v", c.name, refused, err)
			continue
		}
		content := make([]byte, 16*block)
		if _, err := made.file.ReadAt(content, 0); err != nil {
			t.Fatal(err)
		}
		written := 0
		for at := range 16 {
			p := content[at*block:][:block]
			if binary.LittleEndian.Uint64(p) != uint64(at) {
				t.Errorf("%s: at block %d is the number of another", c.name, at)
			}
			if bytes.Equal(p[8:], make([]byte, block-8)) {
				written++
			}
		}
		if int64(written) < min(got.Requests, 12) { // (A commit that does not fit begins anew.)
			t.Errorf("%s: %d blocks are written, by %d records", c.name, written, got.Requests)
		}
	}
}

func TestMeasureCountsItsWindow(t *testing.T) {
	c, err := contestantNamed("null")
	if err != nil {
		t.Fatal(err)
	}
	var all, late atomic.Int64
	got, err := measure(c, &nullFile{}, 100, true, time.Millisecond, 20*time.Millisecond, func(i int) (func(bool) error, error) {
		first := true
		return func(ramp bool) error {
			all.Add(1)
			if first && i == 7 {
				time.Sleep(30 * time.Millisecond) // The ramp waits for it.
				if !ramp {
					late.Add(1)
				}
			}
			first = false
			time.Sleep(100 * time.Microsecond)
			return nil
		}, nil
	})
	if err != nil || got.Requests < 1 || got.Requests >= all.Load() || got.Max < 100*time.Microsecond || got.Real < 20*time.Millisecond {
		t.Errorf("%d of %d, %+v, %v", got.Requests, all.Load(), got, err)
	}
	if late.Load() > 0 {
		t.Error("the window was open before all had been through the ramp")
	}
	if got.Threads < 1 || got.P50 > got.P99 || got.P99 > got.P999 || got.P999 > got.P9999 || got.P9999 > got.Max {
		t.Errorf("%+v", got)
	}
}

func TestAWindowStaysOpenForOne(t *testing.T) {
	c, err := contestantNamed("null")
	if err != nil {
		t.Fatal(err)
	}
	got, err := measure(c, &nullFile{}, 1, true, 0, time.Millisecond, func(int) (func(bool) error, error) {
		return func(bool) error {
			time.Sleep(20 * time.Millisecond)
			return nil
		}, nil
	})
	if err != nil || got.Requests != 1 || got.Real < time.Millisecond || got.Max < 20*time.Millisecond {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestMeasureEndsWithAnError(t *testing.T) {
	c, err := contestantNamed("null")
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	for _, in := range []bool{true, false} {
		_, err := measure(c, &nullFile{}, 4, true, time.Millisecond, time.Hour, func(i int) (func(bool) error, error) {
			return func(ramp bool) error {
				if i == 2 && ramp == in {
					return broken
				}
				return nil
			}, nil
		})
		if err != broken {
			t.Errorf("in the ramp %t: %v", in, err)
		}
	}
	if _, err := measure(c, &nullFile{}, 4, true, 0, 0, func(int) (func(bool) error, error) { return nil, broken }); err != broken {
		t.Error(err)
	}
}

func TestWhole(t *testing.T) {
	p := make([]byte, 8)
	if whole(8, nil, p) != nil || whole(7, nil, p) == nil || whole(0, os.ErrClosed, p) != os.ErrClosed {
		t.Error("what is short or failed is no whole read")
	}
}
