package ringway

// When a look into the page cache is worth its system call.

import "sync/atomic"

// guess is whether something is worth a try: a read in the page cache, say. After misses in a row fewer and fewer are tried,
// until there is a hit again. Goroutines may count at once and miss one another: it is a guess in any case.
type guess struct {
	misses, skip atomic.Uint32
}

// mostMisses in a row after which it does not become rarer: one try in 256.
const mostMisses = 12

func (g *guess) worth() bool {
	skip := g.skip.Load()
	if skip == 0 {
		return true
	}
	g.skip.Store(skip - 1)
	return false
}

func (g *guess) hit() {
	// Written only when it changes, for the cache line is everybody's.
	if g.misses.Load() != 0 {
		g.misses.Store(0)
	}
}

func (g *guess) miss() {
	misses := min(g.misses.Load()+1, mostMisses)
	g.misses.Store(misses)
	g.skip.Store(1 << misses >> 4)
}
