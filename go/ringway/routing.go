//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// How direct transfers are submitted that io_uring may not be able to start asynchronously, as
// pure data. Queues that submit them are in routed.go.
//
// io_uring passes ("punts") a transfer that would wait to an io-wq worker, which costs several
// times as much as the transfer. So direct reads are submitted with RWF_NOWAIT: the kernel then
// fails them with EAGAIN instead of punting them, and they are submitted again, to KAIO or without
// the flag. The reads of such a file that follow go to KAIO, while that lasts: after a run of them
// one read is submitted to io_uring again, as a check. If it is not punted, the file returns to
// io_uring; otherwise the next run is twice as long.
//
// Writes are never routed, since KAIO waits for those that allocate space too. One of them is
// checked now and then, so that punted writes show in the statistics.

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// Transfers from one check of a file to the next.
const (
	shortestRun = 64
	longestRun  = 1024
)

// route is how a transfer is submitted.
type route uint8

const (
	routeUndecided route = iota
	routePlain           // To the ring, which may punt it.
	routeNowait          // To the ring, which fails it with EAGAIN instead of punting it.
	routeCheck           // As routeNowait; the result decides about the next transfers.
	routeKAIO            // To KAIO.
)

// phase is how the transfers of a file in one direction are submitted.
type phase = uint32

const (
	phaseNowait      phase = iota // Each read with RWF_NOWAIT. Writes: the next one is a check.
	phaseAway                     // To KAIO, or without the flag: some, until the next check.
	phaseChecking                 // As phaseAway, while a check is in flight.
	phaseUnsupported              // The file system has no RWF_NOWAIT; all are punted.
)

// direction is the reads or the writes of a file.
type direction struct {
	phase atomic.Uint32 // Changed with the lock held.
	left  int           // Transfers until the next check.
	run   int           // The length of the current or last run.
}

// startRun starts a run; after a check one that is twice as long as the last.
func (d *direction) startRun(afterCheck bool) {
	if afterCheck {
		d.run = min(max(2*d.run, shortestRun), longestRun)
	} else {
		d.run = shortestRun
	}
	d.left = d.run
	d.phase.Store(phaseAway)
}

// next returns away, or makes the transfer the check.
func (d *direction) next(away route) route {
	if d.phase.Load() == phaseChecking {
		return away
	}
	if d.left == 0 {
		d.phase.Store(phaseChecking)
		return routeCheck
	}
	d.left--
	return away
}

// routing is how the transfers of a file are submitted. Combiners of several shards use it.
type routing struct {
	mu            sync.Mutex // Protects what follows, except for loads of phases.
	reads, writes direction
}

func (t *routing) direction(op opcode) *direction {
	if op == opWrite {
		return &t.writes
	}
	return &t.reads
}

// next decides how the next transfer is submitted. toKAIO reports whether KAIO takes punted reads.
// isPunted reports that the ring will punt it.
func (t *routing) next(op opcode, toKAIO bool) (to route, isPunted bool) {
	d := t.direction(op)
	switch now := d.phase.Load(); {
	case now == phaseUnsupported:
		return routePlain, true
	case op == opRead && (now == phaseNowait || !toKAIO):
		return routeNowait, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch now := d.phase.Load(); {
	case now == phaseUnsupported:
		return routePlain, true
	case op == opWrite:
		return d.next(routePlain), false
	case now == phaseNowait:
		return routeNowait, false
	}
	return d.next(routeKAIO), false
}

// notePunted records that a transfer that took a route would have been punted. It returns how the
// transfer is submitted again.
func (t *routing) notePunted(op opcode, took route, toKAIO bool) route {
	toKAIO = toKAIO && op == opRead
	t.mu.Lock()
	defer t.mu.Unlock()
	switch d := t.direction(op); {
	case took == routeCheck && d.phase.Load() == phaseChecking:
		d.startRun(true)
	case toKAIO && d.phase.Load() == phaseNowait:
		d.startRun(false)
	}
	if toKAIO {
		return routeKAIO
	}
	return routePlain
}

// noteUnsupported records that the file system does not support RWF_NOWAIT.
func (t *routing) noteUnsupported(op opcode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.direction(op).phase.Store(phaseUnsupported)
}

// noteNotPunted records that a check was not punted: reads return to the ring, and the next run of
// writes is twice as long.
func (t *routing) noteNotPunted(op opcode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch d := t.direction(op); {
	case d.phase.Load() != phaseChecking:
	case op == opWrite:
		d.startRun(true)
	default:
		d.phase.Store(phaseNowait)
	}
}

// puntCounts counts the transfers of an engine that were punted, or would have been.
type puntCounts struct {
	reads, writes atomic.Uint64
	unsupported   atomic.Uint64 // Of these: on files without RWF_NOWAIT.
	routed        atomic.Uint64 // Transfers that went to KAIO.
}

func (c *puntCounts) add(op opcode) {
	if op == opWrite {
		c.writes.Add(1)
	} else {
		c.reads.Add(1)
	}
}

func (c *puntCounts) total() uint64 { return c.reads.Load() + c.writes.Load() }

// asyncDirect is the feature that punted transfers lack.
const asyncDirect = "asynchronous direct I/O"

// refusal explains what was not asynchronous and why, and how to fix it. It is nil if nothing was
// punted.
func (c *puntCounts) refusal() *Refusal {
	reads, writes, routed := c.reads.Load(), c.writes.Load(), c.routed.Load()
	var found, fixes []string
	if reads > 0 {
		found = append(found, fmt.Sprintf("%d direct reads would have waited", reads))
		fixes = append(fixes,
			"do not read the file through the page cache too, or drop its pages")
	}
	if writes > 0 {
		found = append(found, fmt.Sprintf("of the direct writes checked, %d waited", writes))
		fixes = append(fixes,
			"allocate the file before writing it (fallocate, or one write of zeroes)")
	}
	if found == nil {
		return nil
	}
	errno, why := syscall.EAGAIN, "they allocate space or extend the file"
	switch {
	case c.unsupported.Load() > 0:
		errno, why = syscall.EOPNOTSUPP, "the file system does not support RWF_NOWAIT"
	case reads > 0:
		why = "pages of the file are in the page cache (kernels before 5.13) or dirty there, " +
			"or the device's queue is full"
	}
	then := "io-wq workers did them"
	if routed > 0 {
		then = fmt.Sprintf("KAIO did %d transfers", routed)
	}
	return &Refusal{
		Feature: asyncDirect, Errno: errno,
		Meaning: strings.Join(found, ", ") + ": " + why + "; " + then,
		Fix:     strings.Join(fixes, "; "),
	}
}
