// Plans: a table of what is decided, and what holds for the plans of all conditions.

package ringway

import (
	"math"
	"math/rand/v2"
	"testing"
)

// known is a file of which everything is known, of a device with blocks of 512 bytes.
var known = directLimits{memory: 4, offset: 512, largest: 128 << 10, exact: true}

// unknown is a file of which nothing is known.
var unknown = directLimits{memory: 1, offset: 1, largest: maxTransfer}

func TestPlan(t *testing.T) {
	const address = 0x10_0000
	buffered := conditions{storage: true, cache: skipCache, queue: true, few: true, off: 8192,
		n: 4096}
	direct := buffered
	direct.direct, direct.limits, direct.address = true, &known, address
	for _, c := range []struct {
		what   string
		from   conditions
		change func(c *conditions)
		want   plan
	}{
		{"a pipe", buffered, func(c *conditions) { c.storage = false }, plan{way: wayOS, n: 4096}},
		{"a pipe, whatever else", direct, func(c *conditions) { c.storage, c.closed = false, true },
			plan{way: wayOS, n: 4096}},
		{"beyond the largest offset", direct, func(c *conditions) { c.off = math.MaxInt64 - 4095 },
			plan{way: wayOS, n: 4096}},
		{"a write there is the kernel's", direct,
			func(c *conditions) { c.op, c.off, c.n = opWrite, math.MaxInt64-511, 512 },
			plan{way: wayFew, n: 512}},

		{"cached", buffered, func(c *conditions) { c.cache = probe }, plan{way: wayCache, n: 4096}},
		{"certainly cached", buffered, func(c *conditions) { c.cache, c.n = pread, 3<<20 },
			plan{way: wayCache, n: 1 << 20}},
		{"cached, after the engine was closed", buffered,
			func(c *conditions) { c.cache, c.closed, c.queue = probe, true, false },
			plan{way: wayCache, n: 4096}},
		{"not cached", buffered, func(c *conditions) {}, plan{way: wayFew, n: 4096}},
		{"with a context that can end", buffered, func(c *conditions) { c.few = false },
			plan{way: wayQueue, n: 4096}},
		{"at the current position", buffered, func(c *conditions) { c.off = atCurrent },
			plan{way: wayFew, n: 4096}},
		{"on a file system that is not known", buffered, func(c *conditions) { c.queue = false },
			plan{way: wayCall, n: 4096}},
		{"more than a system call may transfer", buffered,
			func(c *conditions) { c.n = math.MaxInt32 }, plan{way: wayFew, n: 1 << 30}},
		{"closed", buffered, func(c *conditions) { c.closed, c.queue = true, false },
			plan{way: wayClosed, n: 4096}},
		{"a buffered write", buffered, func(c *conditions) { c.op, c.queue = opWrite, false },
			plan{way: wayCall, n: 4096}},

		{"aligned", direct, func(c *conditions) {}, plan{way: wayFew, n: 4096}},
		{"in blocks that are no pages", direct, func(c *conditions) { c.off, c.n = 512, 1024 },
			plan{way: wayFew, n: 1024}},
		{"larger than a request", direct, func(c *conditions) { c.n = 192 << 10 },
			plan{way: waySplit, n: 192 << 10, span: span{size: 128 << 10}}},
		{"larger than all pieces", direct, func(c *conditions) { c.n = 16 << 20 },
			plan{way: waySplit, n: 1 << 20, span: span{size: 128 << 10}}},
		{"larger than a request, without a queue", direct,
			func(c *conditions) { c.n, c.queue = 16<<20, false }, plan{way: wayCall, n: 16 << 20}},
		{"not aligned, and nothing is known", direct,
			func(c *conditions) { c.limits, c.queue, c.off, c.n = &unknown, false, 1, 1000 },
			plan{way: wayCall, unsure: true, n: 1000}},

		{"the buffer is not aligned", direct, func(c *conditions) { c.address += 2 },
			plan{way: wayBuffer, n: 4096, span: span{size: 4096}}},
		{"the offset is not", direct, func(c *conditions) { c.off += 100 },
			plan{way: wayBuffer, n: 4096, span: span{4608, 100}}},
		{"the length is not", direct, func(c *conditions) { c.n = 1 },
			plan{way: wayBuffer, n: 1, span: span{size: 512}}},
		{"more than a buffer", direct, func(c *conditions) { c.address++; c.n = 3 << 20 },
			plan{way: wayBuffer, n: 1 << 20, span: span{size: 1 << 20}}},
		{"the last blocks before 2^63", direct,
			func(c *conditions) { c.off, c.n = math.MaxInt64-1000, 1000 },
			plan{way: wayBuffer, n: 489, span: span{512, 23}}},
		{"the last one, which none can reach", direct,
			func(c *conditions) { c.off, c.n = math.MaxInt64-500, 500 },
			plan{way: wayLastBlock, n: 500}},

		{"a direct write", direct, func(c *conditions) { c.op = opWrite },
			plan{way: wayFew, n: 4096}},
		{"a large one is not split", direct, func(c *conditions) { c.op, c.n = opWrite, 16<<20 },
			plan{way: wayFew, n: 16 << 20}},
		{"a write from memory that is not aligned", direct,
			func(c *conditions) { c.op, c.n = opWrite, 16<<20; c.address++ },
			plan{way: wayBuffer, n: 1 << 20, span: span{size: 1 << 20}}},
		{"an append of it stays one write", direct, func(c *conditions) {
			c.op, c.n, c.off, c.queue = opWrite, 16<<20, atCurrent, false
			c.address++
		}, plan{way: wayBuffer, n: 16 << 20, span: span{size: 16 << 20}}},
		{"a write whose range is not aligned is the kernel's", direct,
			func(c *conditions) { c.op, c.off = opWrite, 100 }, plan{way: wayFew, n: 4096}},
	} {
		given := c.from
		c.change(&given)
		got := given.plan()
		expect(t, got == c.want, "%s: %+v, not %+v", c.what, got, c.want)
	}
}

func TestShortReadTellsTheEndOfTheFile(t *testing.T) {
	l := known
	expect(t, l.tellsEnd(1000) && !l.tellsEnd(1024) && !l.tellsEnd(0), "with blocks of 512 bytes")
	if l.exact = false; l.tellsEnd(1000) || unknown.tellsEnd(1000) {
		t.Error("on a file system that is not known")
	}
}

func TestLargestRequestIsWholeBlocks(t *testing.T) {
	for _, c := range []struct{ largest, block, want int }{{128 << 10, 512, 128 << 10},
		{130_000, 4096, 31 * 4096}, {maxTransfer, 1, maxTransfer}, {4096, 64 << 10, 64 << 10}} {
		got := wholeBlocks(c.largest, c.block)
		expect(t, got == c.want, "%+v: %d", c, got)
	}
}

// conditionsOf makes conditions that a file can have.
func conditionsOf(bits uint32, off, size, address uint64) conditions {
	flag := func(n int) bool { return bits>>n&1 != 0 }
	c := conditions{
		op: opcode(bits & 1), storage: !flag(1) || !flag(2), direct: flag(3), closed: flag(4),
		queue: flag(5), few: flag(6), cache: skipCache, off: int64(off >> 1),
		n: max(int(size%(5<<30)), 1), address: uintptr(address % (1 << 40)),
	}
	if flag(7) {
		c.n = min(c.n>>12, 16<<20) + 1
	}
	if flag(8) {
		c.off = int64(off % (1 << 30))
	} else if flag(9) { // Near the largest offset.
		before := 1 + int(off%(1<<(size%22)))
		c.off = math.MaxInt64 - int64(before)
		if flag(11) {
			c.n = 1 + c.n%before
		}
	}
	if flag(10) {
		c.off, c.n, c.address = c.off&^4095, max(c.n&^4095, 4096), c.address&^4095
	}
	if c.direct {
		c.limits = &directLimits{memory: 1 << (bits >> 12 & 15 % 13),
			offset: 1 << (bits >> 16 & 15), exact: flag(20)}
		c.limits.largest = wholeBlocks(4096<<(bits>>21&15), c.limits.offset)
		if flag(25) {
			c.limits = &unknown
		}
	} else if c.op == opRead {
		c.cache = cacheUse(bits >> 26 % 3)
	}
	switch {
	case flag(28) && (c.op == opWrite || !c.direct):
		c.off = atCurrent
		c.queue = c.queue && !c.direct
	case c.op == opWrite && c.direct: // As checkAligned requires.
		c.off &^= int64(c.limits.offset - 1)
		c.n = max(c.n&^(c.limits.offset-1), c.limits.offset)
	}
	c.queue = c.queue && !c.closed && (c.op == opRead || c.direct)
	return c
}

// checkPlan checks what holds for every plan.
func checkPlan(t *testing.T, c *conditions) {
	t.Helper()
	p := c.plan()
	holds := func(condition bool, what string) {
		t.Helper()
		expect(t, condition, "%s: %+v: %+v", what, *c, p)
	}
	holds(p.n > 0 && p.n <= c.n, "a step makes progress, within the buffer")
	holds(c.op == opRead || c.off != atCurrent || p.n >= min(c.n, maxTransfer),
		"an append is one write")
	aligned := c.direct && (c.off == atCurrent || c.limits.aligned(c.address, c.off, c.n))
	switch p.way {
	case wayCall, wayQueue, wayFew, waySplit:
		holds(!c.closed && c.storage && (p.way != wayCall) == c.queue, "a queue, where one may")
		holds(!c.direct || aligned, "direct transfers are aligned")
		holds(!c.direct || p.n&(c.limits.offset-1) == 0 || p.n == c.n, "none stops in a block")
		large := c.direct && c.op == opRead && c.n > c.limits.largest
		holds((p.way == waySplit) == (large && c.queue), "what is split")
		holds(p.way != waySplit || p.span.size == c.limits.largest && p.n > p.span.size &&
			(p.n+p.span.size-1)/p.span.size <= maxPieces, "the pieces")
		holds(p.way == waySplit || p.n <= maxTransfer, "what one operation may transfer")
	case wayBuffer:
		size, skip, block := p.span.size, p.span.skip, c.limits.offset
		holds(!aligned || c.address&uintptr(c.limits.memory-1) != 0, "no buffer for nothing")
		holds(skip >= 0 && size >= skip+p.n && size <= p.n+skip+block, "the buffer suffices")
		// The transfer between the buffer and the file needs no other buffer.
		inner := *c
		inner.address, inner.n, inner.inBuffer = 1<<20, size, true
		if c.off != atCurrent {
			inner.off -= int64(skip)
			holds(inner.off >= 0 && (c.op == opWrite || inner.off <= maxOffset-int64(size)),
				"the range of the buffer")
		}
		way := inner.plan().way
		inner.inBuffer = false
		holds(way != wayOS && inner.plan().way == way, "the buffer is aligned")
	case wayLastBlock:
		holds(c.direct && c.off >= maxOffset-int64(c.limits.offset-1), "the last block")
	}
}

func FuzzPlan(f *testing.F) {
	for bits := uint32(1); bits != 0; bits <<= 1 {
		f.Add(bits|8, uint64(math.MaxUint64)-uint64(bits), uint64(bits)*977, uint64(bits)*4095)
	}
	f.Fuzz(func(t *testing.T, bits uint32, off, size, address uint64) {
		c := conditionsOf(bits, off, size, address)
		checkPlan(t, &c)
	})
}

// The plans of many conditions, always the same.
func TestPlans(t *testing.T) {
	ways := map[way]int{}
	random := rand.New(rand.NewPCG(1, 2))
	for range 300_000 {
		c := conditionsOf(random.Uint32(), random.Uint64(), random.Uint64(), random.Uint64())
		checkPlan(t, &c)
		ways[c.plan().way]++
		if t.Failed() {
			break
		}
	}
	for w := wayOS; w <= wayLastBlock; w++ {
		expect(t, ways[w] != 0 || t.Failed(), "way %d is in no plan: %v", w, ways)
	}
}

// A transfer that was refused because it was not aligned makes later ones use an aligned buffer,
// but none is refused for it.
func TestUnknownAlignmentRefusesNothing(t *testing.T) {
	f := &File{direct: true, storage: true}
	f.factsOnce.Do(func() { f.facts.memory, f.facts.offset = 1, 1 })
	f.needsPages.Store(true)
	check(t, f.checkAligned(512, 512))
	expect(t, f.directLimits().memory == pageSize, "an unaligned buffer is used again")
}
