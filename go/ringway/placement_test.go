//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Which way transfers go: by queues, plain calls or the page cache. And what the Rust core and
// engine have too: a table, and limits that were measured or found once.

package ringway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringway-io/ringway/go/internal/core"
	"github.com/ringway-io/ringway/go/internal/skip"
)

func TestFileSystemTableIsUnderstood(t *testing.T) {
	for line := range strings.Lines(fileSystemTable) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		system, ok := parseFileSystem(line)
		expect(t, ok && strings.Contains("all reported -", system.ring) &&
			strings.Contains("direct nocow reported -", system.kaio) &&
			strings.Contains("known grows -", system.alignment), "%q is %+v, %v", line, system, ok)
	}
	for _, line := range []string{"", "# a 0x1 yes all direct yes known",
		"a 0x1 yes all direct yes", "a one yes all direct yes known"} {
		system, ok := parseFileSystem(line)
		expect(t, !ok, "%q is %+v", line, system)
	}
}

func TestPlacement(t *testing.T) {
	const ext4, btrfs, overlay, fuse = 0xef53, 0x9123683e, 0x794c7630, 0x65735546
	for _, c := range []struct {
		magic                   int64
		direct, reported, nocow bool
		want                    placement
	}{
		{ext4, true, true, false, placement{ring: true, kaio: true}},
		{ext4, true, false, false, placement{ring: true, kaio: true}},
		{ext4, false, false, false, placement{ring: true}},
		{bdevMagic, true, true, false, placement{ring: true, kaio: true}},
		{btrfs, true, false, false, placement{ring: true}},
		{btrfs, true, false, true, placement{ring: true, kaio: true}},
		{overlay, true, true, false, placement{ring: true}},
		{overlay, true, false, false, placement{}},
		{overlay, false, false, false, placement{}},
		{fuse, true, true, true, placement{}},
		{0, true, true, true, placement{}},
	} {
		got := fileSystems()[c.magic].place(c.direct, c.reported, func() bool { return c.nocow })
		expect(t, got == c.want, "%+v: %+v", c, got)
	}
}

// engineThatCounts makes an engine whose operations on the queue are counted.
func engineThatCounts(t *testing.T, backend Backend) (e *Engine, queued func() uint64) {
	e = newOrSkip(t, Options{Backend: backend, AlwaysRing: true})
	return e, func() uint64 { return e.Stats().Pushed }
}

// Transfers, batches and syncs of a file in a file system that is not known are plain calls, with
// the results of os.File; those of other files are not.
func TestUnknownFileSystemIsLeftToPlainCalls(t *testing.T) {
	dir := mount(t, "none", "ramfs", "")
	for _, backend := range queueBackends {
		e, queued := engineThatCounts(t, backend)
		for _, in := range []string{dir, t.TempDir()} {
			name := filepath.Join(in, "file")
			must(t, os.WriteFile(name, make([]byte, 3*pageSize), 0o600))
			flag := os.O_RDWR
			if in != dir {
				flag |= Direct
			}
			f := open(t, e, name, flag)
			known := f.lookUp().allows(backend)
			expect(t, known != (in == dir), "%s: %s: %+v", backend, in, f.lookUp())
			before := queued()
			batch := pages(pageSize)
			check(t, errors.Join(errorOf(f.ReadAt(page(), 2*pageSize)), f.ReadBatch(batch),
				f.WriteBatch(batch, DataSync), f.Sync()))
			expect(t, (queued() != before) == known, "%s: %s: %d operations in the queue", backend,
				in, queued()-before)
		}
	}
}

// A file's reads are split by what its device takes at once.
func TestLargestRequestIsThatOfTheDevice(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, nil, os.O_RDWR|direct)
		facts, want := f.lookUp(), maxTransfer
		if direct != 0 && facts.exact {
			want = wholeBlocks(largestRequest(f.fd), facts.offset)
		}
		expect(t, facts.largest == want, "%d, not %d: %+v", facts.largest, want, facts)
	})
}

func TestPace(t *testing.T) {
	p := pace{limit: 256}
	require(t, p.due(1, 0) && !p.due(0, 0), "a single request must be due, and none must not")
	p.submitted(128)
	require(t, !p.due(15, 0) && p.due(16, 0), "under load, an eighth of the requests must gather")
	p.completed(128)
	require(t, !p.due(15, 128), "requests of woken goroutines must gather too")
	p.submitted(256)
	require(t, p.capacity() == 0 && !p.due(1000, 0), "no capacity must be left")
	// Requests are held back only while completions are due.
	for inFlight := range 300 {
		for waiting := 1; waiting < 300; waiting++ {
			p := pace{limit: 192, inFlight: inFlight}
			require(t, p.due(waiting, 0) || inFlight != 0,
				"held back with no completion due: %v, %v", inFlight, waiting)
		}
	}
}

func TestLoad(t *testing.T) {
	var l load
	rounds := func(n int) {
		for i := range loadRounds {
			// The other goroutines were just woken and have not submitted yet.
			if i == loadRounds/2 {
				l.observe(n)
			}
			l.endRound()
		}
	}
	l.set(true)
	for range 3 {
		if rounds(fewTransfers + 1); !l.high.Load() {
			t.Fatal("the load must stay high")
		}
	}
	if rounds(fewTransfers); l.high.Load() {
		t.Fatal("the load must be low")
	}
	if rounds(fewTransfers + 1); !l.high.Load() {
		t.Fatal("the load must be high")
	}
}

// What Linux AIO refuses, before or after it has taken the request, is left to a plain call: that
// has the errno of every backend, or does it.
func TestLinuxAIORefusals(t *testing.T) {
	k, err := newKAIO(8)
	if err != nil {
		skip.Test(t, err)
	}
	defer func() { must(t, k.close()) }()
	e := newOrSkip(t, Options{Backend: BackendThreads})
	f := openIn(t, e, make([]byte, 4*pageSize), os.O_RDWR|Direct)
	closed := openIn(t, e, nil, os.O_RDWR|Direct)
	must(t, closed.Close())
	chain := f.request(opWritev, nil, 0)
	chain.extra = &writevRequest{linked: f.request(opFsync, nil, 0)}
	odd := int32(unsupported)
	if n, err := f.file.ReadAt(page()[:100], 0); err == nil {
		odd = int32(n) // Some file systems take any length.
	}
	for what, c := range map[string]struct {
		request *request
		want    int32
	}{
		"an aligned read":     {f.request(opRead, page(), 0), pageSize},
		"an odd length":       {f.request(opRead, page()[:100], 0), odd},
		"a closed descriptor": {closed.request(opRead, page(), 0), unsupported},
		"a chain":             {chain, unsupported},
		"the end of the file": {f.request(opRead, page(), 4*pageSize), 0},
	} {
		c.request.mayWait = false
		k.push(c.request)
		var done []*request
		eventually(t, what, func() bool {
			k.submit()
			done = k.reap(done)
			return len(done) == c.request.count()
		})
		for _, r := range done {
			expect(t, r.result == c.want, "%s: %d, not %d", what, r.result, c.want)
		}
	}
}

// Up to a limit, transfers are plain calls, whether they return or hang. Transfers beyond the limit
// go to the queue, and so do all others until only a few run again.
func TestFewTransfersArePlainCalls(t *testing.T) {
	for _, backend := range queueBackends {
		e := newOrSkip(t, Options{Backend: backend, Rings: 1})
		f := openIn(t, e, page(), os.O_RDONLY|Direct)
		p := page()
		pushed := func() uint64 {
			moves(t, pageSize)(f.ReadAt(p, 0))
			return e.Stats().Pushed
		}
		for range 100 {
			n := pushed()
			require(t, n == 0 && e.plain.Load() == 0,
				"%s: one transfer: %d through the queue, %d plain", backend, n, e.plain.Load())
		}
		e.plain.Store(fewTransfers) // They hang.
		if n := pushed(); n != 1 || e.plain.Load() != fewTransfers {
			t.Fatalf("%s: next to plain calls that hang: %d through the queue, %d plain", backend,
				n, e.plain.Load())
		}
		e.plain.Store(0) // They have returned.
		n := pushed()
		require(t, n == 2, "%s: right after high load: %d through the queue", backend, n)
		for range loadRounds {
			n = pushed()
		}
		if again := pushed(); again != n {
			t.Errorf("%s: long after high load, one transfer goes through the queue", backend)
		}
	}
}

func TestCachePredictor(t *testing.T) {
	var c cachePredictor
	ways := func(n int) (count [3]int) {
		for range n {
			w := c.next()
			count[w]++
			if w == probe {
				c.miss()
			}
		}
		return count
	}
	require(t, ways(3)[probe] == 3, "a few misses stop the probes")
	n := ways(10_000)[probe]
	require(t, n >= 4 && n <= 60, "wrong number of probes after many misses: %v", n)
	c.hit()
	c.skip.Store(0)
	require(t, ways(3)[probe] == 3, "a hit does not bring the probes back")

	for range certainHits {
		require(t, c.next() != pread, "certain too early")
		c.skip.Store(0)
		c.hit()
	}
	var count [3]int
	for range 100 * probeInterval {
		count[c.next()]++
	}
	require(t, count[skipCache] <= 0 && count[probe] >= 50 && count[probe] <= 200,
		"about one read in %d should probe: %v", probeInterval, count)
	c.miss()
	require(t, c.next() == probe, "a miss does not end certainty")
}

// Reads of data that has left the page cache return the right bytes, and end the prediction that it
// is cached.
func TestEvictedPages(t *testing.T) {
	content := make([]byte, 4<<20)
	for i := range content {
		content[i] = byte(i >> 12)
	}
	f := openIn(t, newOrSkip(t, Options{}), content, os.O_RDWR)
	must(t, f.Sync())
	p := make([]byte, 4096)
	all := func(rounds int) {
		for i := range rounds {
			page := i * 7 % 1024
			n, err := f.ReadAt(p, int64(page)<<12)
			require(t, n == len(p) && err == nil && p[0] == byte(page) && p[4095] == byte(page),
				"%v, %v, %v", page, n, err)
		}
	}
	all(2 * certainHits)
	if f.cache.hits.Load() < certainHits {
		skip.Test(t, "this file system does not report what is cached")
	}
	evict(t, f, 0)
	all(200)
	require(t, f.cache.hits.Load() < certainHits, "the prediction is still certain")
}

func TestFileSystemTableIsThatOfTheCore(t *testing.T) {
	expect(t, core.File(t, "ringway-core/src/device/file_systems.txt") == fileSystemTable,
		"file_systems.txt differs from that in crates/ringway-core/src/device")
}

// A constant that changes here or there changes in both, or its line goes, with the reason.
func TestConstantsAreThoseOfTheCore(t *testing.T) {
	const rust, engine = "ringway-core/src", "ringway/src"
	for _, c := range []struct {
		value       int64
		place, name string
	}{
		{groupShare, engine, "BATCH_SHARE"},
		{largestGroup, engine, "MAX_BATCH"},
		{maxRounds, engine, "MAX_ROUNDS"},
		{maxMoved, engine, "MAX_OPERATIONS"},
		{int64(hungAfter), engine, "TRANSFERS_HUNG_AFTER"},
		{int64(deviceHungAfter), engine, "DEVICE_HUNG_AFTER"},
		{largestLane, engine, "MAX_HUNG_OPERATIONS"},
		{maxCachedRead, engine, "READ_STEP"},
		{maxMisses, rust, "MAX_MISSES"},
		{maxPieces, rust, "WINDOW"},
		{maxTransfer, rust, "MAX_PIECE"},
		{maxRetries, rust + "/queue", "MAX_RETRIES"},
		{maxFixed, rust, "MAX_BUFFER"},
		{extentsPerBlock, rust, "PER_BLOCK"},
		{int64(readExtentsFor), rust, "AT_MOST"},
		{accessLately, rust, "WATCHED_FOR"},
		{accessNever, rust, "NEVER_CHANGED"},
	} {
		if there := core.Constant(t, c.place, c.name); c.value != there {
			t.Errorf("%d here, but %s is %d in crates/%s", c.value, c.name, there, c.place)
		}
	}
}
