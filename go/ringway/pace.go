package ringway

import "sync/atomic"

// When requests that have gathered are submitted together: the arithmetic, as pure data.
//
// To submit each by itself costs a system call for each; to submit all that have completed at once makes a convoy: the
// device stands idle while they are prepared, and then has them all. Groups of an eighth of what is in flight have neither
// fault. A lone request is a group. What is held back waits for completions, of which there are at least eight on their way, or
// for the reaper, who comes back after the goroutines that it woke. Where none comes for a millisecond, since what is in flight
// hangs, the shard does not wait any longer.

const (
	// share of what is in flight that makes a group.
	share = 8
	// largest group: as many as a submission queue takes at once.
	largest = 64
)

// group is how many make one, of so many in flight.
func group(inFlight int) int { return min(max(inFlight/share, 1), largest) }

// pace decides whether it is time to submit.
type pace struct {
	inFlight int // Requests that the kernel has.
	cap      int // The most of them.
	since    int // Completions since the last submission.
}

func (p *pace) room() int { return max(p.cap-p.inFlight, 0) }

// due tells whether to submit, with so many waiting. expected: goroutines that are about to run and will have more to submit,
// after which the reaper comes back.
func (p *pace) due(waiting, expected int) bool {
	ready := min(waiting, p.room())
	overdue := expected == 0 && p.since >= group(p.inFlight)
	return ready > 0 && (overdue || ready >= group(p.inFlight+expected))
}

func (p *pace) submitted(n int) {
	p.inFlight += n
	p.since = 0
}

func (p *pace) completed(n int) {
	p.inFlight -= n
	p.since += n
}

const (
	// fewest is how many transfers are plain calls at most, at the same time. So few have hardly anybody to share a submission
	// with, and the plain call is quicker. Each may block a thread, so this is also the most of those threads.
	fewest = 4
	// crowdRounds is how many rounds a shard makes before it is tried whether there are few again.
	crowdRounds = 64
)

// crowd is whether a shard has more than a few transfers. Plain calls among those of a ring hold up both: the goroutine that
// reaps has to wait for a processor. So it is one or the other, and changes with the most of many rounds: how many there are at
// one moment depends on who runs.
type crowd struct {
	many   atomic.Bool
	most   int // In these rounds. Under the shard's lock, as rounds.
	rounds int
}

// seen is told how many transfers the shard has.
func (c *crowd) seen(n int) { c.most = max(c.most, n) }

// round is told of the end of one.
func (c *crowd) round() {
	if c.rounds++; c.rounds == crowdRounds {
		c.set(c.most > fewest)
		c.most, c.rounds = 0, 0
	}
}

// set writes what all read only when it changes.
func (c *crowd) set(many bool) {
	if c.many.Load() != many {
		c.many.Store(many)
	}
}
