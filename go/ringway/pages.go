// Scans of ranges for pages that the page cache lacks, as pure functions: which bytes to try next,
// and which pages to read. warm.go makes the calls and the reads.

package ringway

import (
	"cmp"
	"math"
	"slices"
)

// maxRun is the most bytes that are read after one missing page without a look at the pages
// between.
const maxRun = 128 << 10

// pageScan is a scan of ranges, page by page. One call tells of two pages: it reads the last byte
// of a page and the first of the next one. That costs half as much as a call for each page, and
// less than copying the pages.
type pageScan struct {
	extents []extent // Whole pages, cut at the end of the file, in order and with gaps between.
	at      int64    // How far the first extent was scanned.
	page    int64    // The page size.
	cached  int64    // Bytes of the pages that were found in the page cache.
}

// extent is the bytes from start to end.
type extent struct{ start, end int64 }

// len returns the number of bytes, at most those of one read.
func (e extent) len() int { return int(min(e.end-e.start, maxRun)) }

// newPageScan returns a scan of the ranges of a file of n bytes, which have no negative numbers.
func newPageScan(ranges []Range, n, page int64) pageScan {
	all := make([]extent, 0, len(ranges))
	for _, r := range ranges {
		end := n
		if r.N < n-r.Off {
			end = r.Off + r.N
		}
		if r.N > 0 && r.Off < end {
			all = append(all, extent{r.Off - r.Off%page, end})
		}
	}
	slices.SortFunc(all, func(a, b extent) int { return cmp.Compare(a.start, b.start) })
	joined := all[:0]
	for _, e := range all {
		if over := e.end % page; over != 0 && e.end < math.MaxInt64-page {
			e.end += page - over
		}
		e.end = min(e.end, n)
		if last := len(joined) - 1; last >= 0 && e.start <= joined[last].end {
			joined[last].end = max(joined[last].end, e.end)
		} else {
			joined = append(joined, e)
		}
	}
	s := pageScan{extents: joined, page: page}
	s.begin()
	return s
}

// begin goes to the beginning of the first extent.
func (s *pageScan) begin() {
	if len(s.extents) > 0 {
		s.at = s.extents[0].start
	}
}

// next returns which bytes to try: the last one of a page and the first of the next, or the first
// of a page. There are none after the last page.
func (s *pageScan) next() (off int64, n int) {
	switch {
	case len(s.extents) == 0:
		return 0, 0
	case s.page < s.extents[0].end-s.at:
		return s.at + s.page - 1, 2
	}
	return s.at, 1
}

// advance takes the result: how many of those bytes are cached. It returns the pages to read, from
// a missing one on; there are none if all are cached. The kernel reads the first page already.
func (s *pageScan) advance(cached int) (first, rest extent) {
	_, n := s.next()
	end := s.extents[0].end
	missing := end
	if skip := int64(cached) * s.page; skip < end-s.at {
		missing = s.at + skip
	}
	s.cached += missing - s.at
	s.at = missing
	if cached < n {
		first = extent{missing, missing + min(s.page, end-missing)}
		s.at = max(first.end, missing+min(maxRun, end-missing))
		rest = extent{first.end, s.at}
	}
	if s.at == end {
		s.extents = s.extents[1:]
		s.begin()
	}
	return first, rest
}
