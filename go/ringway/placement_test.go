//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Which files go to the queues.

package ringway

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
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
