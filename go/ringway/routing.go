//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// How direct transfers are submitted that io_uring may not be able to start asynchronously, as
// pure data. Queues that submit them are in routed.go.
//
// io_uring passes ("punts") a transfer that would wait to an io-wq worker, which costs several
// times as much as the transfer. So direct reads are submitted with RWF_NOWAIT: the kernel then
// fails them with EAGAIN instead of punting them, and they are submitted again without the flag.
// If a file's reads are punted again and again, they and those that follow go to KAIO, or do
// without the flag. After a run of them one read has the flag again, as a check. If it is not
// punted, all reads have the flag again; otherwise the next run is twice as long.
//
// Kernels before 5.13 punt every direct read of pages that are in the page cache, and KAIO does
// not wait for those: where the ring is known to be that old, the first punt decides. Elsewhere a
// punt now and then has causes that KAIO would wait for in the calling thread: pages that are dirty
// in the page cache, a full device queue.
//
// Writes are never routed, since KAIO waits for those that allocate space too. One of them is
// checked now and then, so that punted writes show in the statistics. Appends are plain calls, so
// none of them is checked.

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

const (
	patience = 8  // The punts that decide, if they are half of the reads submitted lately.
	lately   = 64 // Reads that are "lately". After as many, both counts are halved.
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
	phaseNowait   phase = iota // Each read with RWF_NOWAIT. Writes: the next one is a check.
	phaseAway                  // To KAIO, or without the flag: some, until the next check.
	phaseChecking              // As phaseAway, while a check is in flight.
)

// direction is the reads or the writes of a file.
type direction struct {
	phase atomic.Uint32 // Changed with the lock held.
	asked atomic.Uint32 // Transfers with phaseNowait.

	punted int    // How many of the recent ones were.
	halved uint32 // How often punted was halved.
	left   int    // Transfers until the next check.
	run    int    // The length of the current or last run.

	unsupported bool // The file system has no RWF_NOWAIT: the ring punts all transfers.
}

// startRun starts a run of this length.
func (d *direction) startRun(length int) {
	d.run = min(length, longestRun)
	d.left = d.run
	d.phase.Store(phaseAway)
}

// startNowait gives all reads the flag again.
func (d *direction) startNowait() {
	d.punted, d.halved = 0, 0
	d.asked.Store(0)
	d.phase.Store(phaseNowait)
}

// next returns away, or makes the transfer the check. A check that never has a result is followed
// by another one, after a run.
func (d *direction) next(away route) route {
	if d.left == 0 {
		d.run = max(d.run, shortestRun)
		d.left = d.run
		d.phase.Store(phaseChecking)
		return routeCheck
	}
	d.left--
	return away
}

// recent returns how many of all transfers count as recent: they are halved when one is added to
// lately of them. It returns how often they were.
func recent(all uint32) (count int, halved uint32) {
	if all <= lately {
		return int(all), 0
	}
	const half = lately / 2
	after := all - lately - 1
	return int(half + 1 + after%half), 1 + after/half
}

// isPuntedOften counts a punt of a read with phaseNowait. It reports whether there were as many as
// patience, and half of the reads submitted lately.
func (d *direction) isPuntedOften(patience int) bool {
	recent, halved := recent(d.asked.Load())
	d.punted >>= halved - d.halved
	d.halved = halved
	d.punted++
	return d.punted >= patience && (patience == 1 || d.punted >= recent/2)
}

// routing is how the transfers of a file are submitted. Combiners of several shards use it.
type routing struct {
	mu            sync.Mutex // Protects what follows, except for atomics.
	reads, writes direction
}

func (t *routing) direction(op opcode) *direction {
	if op == opWrite {
		return &t.writes
	}
	return &t.reads
}

// next decides how the next transfer is submitted. toKAIO reports whether KAIO takes punted reads.
// The punts of a transfer that does without the flag are counted as it is submitted: isPunted
// reports one, unsupported that it is for lack of RWF_NOWAIT.
func (t *routing) next(op opcode, toKAIO bool) (to route, isPunted, unsupported bool) {
	d := t.direction(op)
	if op == opRead && d.phase.Load() == phaseNowait {
		d.asked.Add(1)
		return routeNowait, false, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if op == opRead && d.phase.Load() == phaseNowait {
		d.asked.Add(1)
		return routeNowait, false, false
	}
	away := routePlain
	if toKAIO && op == opRead && !d.unsupported {
		away = routeKAIO
	}
	if to = d.next(away); to == routePlain {
		// Whether a write waits depends on its place; a read's file decides it.
		return to, op == opRead || d.unsupported, d.unsupported
	}
	return to, false, false
}

// notePunted records that a transfer that took a route would have been punted. It returns how the
// transfer is submitted again. patience is the number of punts that decide.
func (t *routing) notePunted(op opcode, took route, toKAIO bool, patience int) route {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.direction(op)
	d.unsupported = false
	switch now := d.phase.Load(); {
	case took == routeCheck && now == phaseChecking:
		d.startRun(2 * d.run)
	case op == opRead && now == phaseNowait:
		if !d.isPuntedOften(patience) {
			return routePlain
		}
		d.startRun(shortestRun)
	}
	if toKAIO && op == opRead {
		return routeKAIO
	}
	return routePlain
}

// noteUnsupported records that the file system does not support RWF_NOWAIT: the ring punts the
// transfers of a long run.
func (t *routing) noteUnsupported(op opcode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.direction(op)
	d.unsupported = true
	d.startRun(longestRun)
}

// noteNotPunted records that a check was not punted: all reads have the flag again, and the next
// run of writes is twice as long.
func (t *routing) noteNotPunted(op opcode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.direction(op)
	if d.phase.Load() != phaseChecking {
		return
	}
	d.unsupported = false
	if op == opWrite {
		d.startRun(2 * d.run)
	} else {
		d.startNowait()
	}
}

// noteFailed records that a check failed for another reason, which says nothing about punts: the
// next transfer is the check.
func (t *routing) noteFailed(op opcode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.direction(op); d.phase.Load() == phaseChecking {
		d.left = 0
		d.phase.Store(phaseAway)
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
		then = fmt.Sprintf("kaio did %d transfers", routed)
	}
	return &Refusal{
		Feature: asyncDirect, Errno: errno,
		Meaning: strings.Join(found, ", ") + ": " + why + "; " + then,
		Fix:     strings.Join(fixes, "; "),
	}
}
