package ringway

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
