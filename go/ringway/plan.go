// Plans: how one step of a read or a write is made, as a pure function of what is known of it.
// transfer.go asks for what is known, and carries the plans out. Batches of writes and syncs have
// no plans: batch.go and sync.go decide about them.

package ringway

// way is how a step is made.
type way uint8

const (
	wayOS        way = iota // As package os does: the file is no storage, or the range is refused.
	wayCache                // From the page cache, as far as that holds the data.
	wayClosed               // Not at all: the engine is closed.
	wayCall                 // A plain system call, when the number of those allows.
	wayQueue                // One request of a queue.
	wayFew                  // The same, but a plain call if only a few transfers run.
	waySplit                // Several requests at once, none larger than the device's largest.
	wayBuffer               // Through an aligned buffer.
	wayLastBlock            // A direct read in the last block before 2^63, which none can reach.
)

// maxPieces is how many pieces of one read are in flight at once.
const maxPieces = 8

// plan is how a step of a transfer is made. A transfer has as many steps as it takes. The compiler
// keeps a plan in registers as long as it has no more than four fields.
type plan struct {
	way way
	// EINVAL may mean that the direct transfer is not aligned: nothing is known of the alignment,
	// and pages would suit.
	unsure bool
	n      int // How much of the caller's memory the step transfers, at most.
	span   span
}

// span is the size of the pieces of a split read; or that of an aligned buffer, and what it has
// before the caller's range.
type span struct{ size, skip int }

// conditions is what the plan of a step depends on.
type conditions struct {
	op      opcode
	storage bool          // A regular file or a block device.
	direct  bool          // Open for direct I/O.
	cache   cacheUse      // What to do with the page cache. Nothing below is known before that.
	closed  bool          // The engine is closed.
	queue   bool          // A queue of the engine supports such transfers of the file.
	few     bool          // Plain calls may make a few transfers.
	limits  *directLimits // Of direct transfers.
	address uintptr       // Of the caller's buffer.
	off     int64         // Or atCurrent.
	n       int           // The size of the caller's buffer, which is not empty.
	// The buffer is that of a step which goes through one.
	inBuffer bool
}

// plan returns how to make the next step.
func (c *conditions) plan() plan {
	switch {
	case !c.storage || c.op == opRead && endsBeyondRange(c.n, c.off):
		return plan{way: wayOS, n: c.n}
	case c.cache != skipCache:
		return plan{way: wayCache, n: min(c.n, maxCachedRead)}
	case c.closed:
		return plan{way: wayClosed, n: c.n}
	case !c.direct || c.inBuffer: // Needs no buffer.
	case c.op == opRead && !c.limits.aligned(c.address, c.off, c.n):
		return c.planRead()
	case c.op == opWrite && c.address&uintptr(c.limits.memory-1) != 0:
		n := min(c.n, maxTransfer)
		if c.off != atCurrent { // An append stays one write, so that no other write splits it.
			n = min(n, maxBounce)
		}
		return plan{way: wayBuffer, n: n, span: span{size: n}}
	}
	p := plan{way: wayCall, n: min(c.n, maxTransfer)}
	p.unsure = c.direct && c.limits.offset == 1 && !pageLimits.aligned(c.address, c.off, c.n)
	switch {
	case !c.queue:
	case c.direct && c.op == opRead && c.n > c.limits.largest:
		p.way, p.n, p.span.size = waySplit, c.n, c.limits.largest
		if c.n/p.span.size >= maxPieces {
			p.n = maxPieces * p.span.size
		}
	case c.few:
		p.way = wayFew
	default:
		p.way = wayQueue
	}
	return p
}

// planRead returns how to read a range through a buffer that has the enclosing blocks.
func (c *conditions) planRead() plan {
	block, n := c.limits.offset, min(c.n, maxBounce)
	start := c.off &^ int64(block-1)
	skip := int(c.off - start)
	size := (skip + n + block - 1) &^ (block - 1)
	if start > maxOffset-int64(size) {
		if size -= block; size == 0 {
			return plan{way: wayLastBlock, n: n}
		}
		n = min(n, size-skip)
	}
	return plan{way: wayBuffer, n: n, span: span{size, skip}}
}

// endsBeyondRange reports whether the kernel refuses a transfer as a whole, because it would end
// beyond the largest offset. A part of it would meet the end of the file instead.
func endsBeyondRange(n int, off int64) bool {
	return off > maxOffset-int64(min(n, maxTransfer))
}
