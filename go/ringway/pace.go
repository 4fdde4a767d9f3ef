//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The submission policy, as pure data: when a shard submits the requests that have gathered, and
// when it uses plain calls because only a few transfers run.

package ringway

import "sync/atomic"

const (
	// groupShare is the share of the requests in flight that makes a group: an eighth.
	groupShare = 8
	// largestGroup is how many requests a submission queue takes at once.
	largestGroup = 64
)

// groupSize returns how many requests to gather when inFlight are in flight.
func groupSize(inFlight int) int { return min(max(inFlight/groupShare, 1), largestGroup) }

// pace decides when to submit.
//
// To submit each request by itself costs a system call for each. To wait until all have completed
// makes a convoy: the device idles while the next group is prepared. Groups of an eighth of what is
// in flight avoid both. A single request is a group. Requests that are held back wait for
// completions, of which at least eight are due, or for the reaper, which runs again after the
// goroutines that it woke. If no completion arrives for a millisecond, the shard submits them.
type pace struct {
	inFlight int // Requests that the kernel has.
	limit    int // The most that it may have.
	since    int // Completions since the last submission.
}

// capacity returns how many more requests the kernel may have.
func (p *pace) capacity() int { return max(p.limit-p.inFlight, 0) }

// due reports whether to submit now. expected is the number of goroutines that are about to run and
// will have more requests; the reaper runs again after them.
func (p *pace) due(waiting, expected int) bool {
	ready := min(waiting, p.capacity())
	overdue := expected == 0 && p.since >= groupSize(p.inFlight)
	return ready > 0 && (overdue || ready >= groupSize(p.inFlight+expected))
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
	// fewTransfers is the most transfers that run as plain calls at the same time. So few rarely
	// share a submission, and a plain call is faster. Each may block a thread.
	fewTransfers = 4
	// loadRounds is how many rounds a shard makes before it decides again.
	loadRounds = 64
)

// load tracks whether a shard has more than a few transfers. Plain calls and the transfers of a
// ring slow each other down, because the goroutine that reaps has to wait for a processor. So a
// shard uses one or the other, and decides by the maximum of many rounds: the number at one moment
// depends on which goroutines happen to run.
type load struct {
	high   atomic.Bool
	most   int // In these rounds. Protected by the shard's lock, as rounds is.
	rounds int
}

// observe records how many transfers the shard has.
func (l *load) observe(n int) { l.most = max(l.most, n) }

// endRound counts a round.
func (l *load) endRound() {
	if l.rounds++; l.rounds == loadRounds {
		l.set(l.most > fewTransfers)
		l.most, l.rounds = 0, 0
	}
}

// set writes only changes, because every transfer reads the cache line.
func (l *load) set(high bool) {
	if l.high.Load() != high {
		l.high.Store(high)
	}
}
