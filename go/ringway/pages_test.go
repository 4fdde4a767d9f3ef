// Scans for pages that the page cache lacks, over a page cache that the tests make up.

package ringway

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// scanned carries a scan out, with a page cache that has some pages. It returns what is read.
func scanned(s *pageScan, has func(page int64) bool) (read []extent, calls int) {
	for {
		off, n := s.next()
		if n == 0 {
			return read, calls
		}
		calls++
		cached := 0
		for cached < n && has((off+int64(cached))/s.page) {
			cached++
		}
		first, rest := s.advance(cached)
		if first.start < first.end {
			read = append(read, extent{first.start, max(first.end, rest.end)})
		}
	}
}

func TestPageScan(t *testing.T) {
	const page = 4096
	all := func(int64) bool { return true }
	none := func(int64) bool { return false }
	s := newPageScan([]Range{{0, 64 * page}}, 64*page, page)
	if read, calls := scanned(&s, all); read != nil || calls != 32 || s.cached != 64*page {
		t.Error("one call tells of two pages:", read, calls, s.cached)
	}
	s = newPageScan([]Range{{10, 1}, {9 * page, 1}}, 100*page, page)
	apart := []extent{{0, page}, {9 * page, 10 * page}}
	if read, _ := scanned(&s, none); !slices.Equal(read, apart) {
		t.Error("no more than was asked for:", read)
	}
	s = newPageScan([]Range{{0, 100*page + 5}}, 100*page+5, page)
	want := []extent{{3 * page, 35 * page}, {35 * page, 67 * page}, {67 * page, 99 * page},
		{99 * page, 100*page + 5}}
	read, _ := scanned(&s, func(n int64) bool { return n < 3 })
	expect(t, slices.Equal(read, want) && s.cached == 3*page,
		"a missing page is read with those after it: %v, %v", read, s.cached)
	const most = math.MaxInt64
	for _, c := range []struct {
		ranges []Range
		n      int64
		want   []extent
	}{
		{[]Range{{5000, 1}, {1, 1}, {4095, 2}}, 1 << 20, []extent{{0, 8192}}},
		{[]Range{{9000, 1}, {0, 1}}, 1 << 20, []extent{{0, 4096}, {8192, 12288}}},
		{[]Range{{0, most}, {7, 0}}, 5000, []extent{{0, 5000}}},
		{[]Range{{5000, 1000}, {most, most}}, 5000, nil},
		{[]Range{{most - 1, most}}, most, []extent{{most - 4095, most}}},
	} {
		if s := newPageScan(c.ranges, c.n, page); !slices.Equal(s.extents, c.want) {
			t.Errorf("%v of %d: %v, not %v", c.ranges, c.n, s.extents, c.want)
		}
	}
}

// Each page of the ranges is found or read, and each once.
func TestPageScanCountsPagesOnce(t *testing.T) {
	const page = 4096
	r := rand.New(rand.NewPCG(1, 2))
	for range 500 {
		size := r.Int64N(500_000)
		var ranges []Range
		wanted := make(map[int64]bool)
		for range r.IntN(20) {
			one := Range{r.Int64N(400_000), r.Int64N(200_000)}
			ranges = append(ranges, one)
			for at := one.Off; at < min(one.Off+one.N, size); at = at/page*page + page {
				wanted[at/page] = true
			}
		}
		cached := make(map[int64]bool)
		for range r.IntN(200) {
			cached[r.Int64N(130)] = true
		}
		s := newPageScan(ranges, size, page)
		read, _ := scanned(&s, func(n int64) bool { return cached[n] })
		for _, e := range read {
			for at := e.start; at < e.end; at += page {
				require(t, wanted[at/page], "read twice, or for nobody: %v, %v, %v", ranges, size,
					e)
				delete(wanted, at/page)
			}
		}
		var found int64
		for n := range wanted {
			require(t, cached[n], "missing, and not read: %v, %v, %v", ranges, size, n)
			found += min(page, size-n*page)
		}
		require(t, s.cached == found, "cached: %v not %v", s.cached, found)
	}
}
