// Warming: what the page cache lacks of ranges of a file is read into it. Which pages those are is
// found in pages.go.

package ringway

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"syscall"
)

// Range is a range of bytes of a file.
type Range struct {
	Off int64 // Off is the offset in the file.
	N   int64 // N is the number of bytes.
}

// Warmed is what [File.Warm] has found and done. Bytes are those of whole pages, each counted once,
// up to the end of the file.
type Warmed struct {
	// Cached is how many bytes were in the page cache.
	Cached int64
	// Read is how many bytes were read: those of missing pages, and of up to 31 pages (of 4 KiB)
	// after each, which are read without a look. All of them where the system does not tell what
	// is cached.
	Read int64
	// Failed is what could not be read.
	Failed []UnreadRange
}

// UnreadRange is pages that [File.Warm] could not read. An access of a mapping to them may raise
// SIGBUS.
type UnreadRange struct {
	Range       // The bytes of the reads that failed. Some of them may be in the page cache.
	Err   error // Err is the error of the first one: EIO, for example.
}

var (
	errWarmDirect = fmt.Errorf("the file is open for direct I/O, which does not use the page "+
		"cache: open it without: %w", syscall.EINVAL)
	errWarmDrops = fmt.Errorf("reads of the file leave no pages: SetDontCache(false) first: %w",
		syscall.EINVAL)
	errNotRegular = fmt.Errorf("not a regular file: %w", syscall.EINVAL)
)

const (
	// warmReads is how many reads are in flight at once.
	warmReads = 64
	// warmBytes is after how many bytes no more reads are added to those in flight.
	warmBytes = 2 << 20
	// warmCalls is how many goroutines read what no queue does.
	warmCalls = 16
)

// Warm brings ranges of the file into the page cache, and returns when they are there, for a
// program that reads them through a mapping: it then finds them without waiting for the device.
// Mappings are not touched: a later access still takes a fault, a minor one.
//
// The ranges may be in any order, overlap or be empty, and each page counts once. What is beyond
// the end of the file, when the call begins, is left out. [File.Advise] with [AdviceWillNeed] does
// not wait, and tells of no error.
//
// What is missing is found with preadv2(2) and RWF_NOWAIT of one byte per page: unlike mincore(2)
// and cachestat(2) it tells the truth of a file of another user. Where the file system does not
// support that (an overlay, tmpfs), everything is read. Where blocks are smaller than pages, a page
// of which a program has written a part may pass for cached. Up to 64 reads are in flight. The
// kernel's read-ahead applies, as the descriptor's advice says, which is not changed. Pages stay
// until the kernel needs their memory.
//
// A range that cannot be read does not stop the others. Warm returns the error of the first one;
// Warmed.Failed has all. It fails with EINVAL for a file that is open for direct I/O, for one whose
// reads leave no pages ([File.SetDontCache]), and for one that is not a regular file. When the
// context ends, it returns the cause at once, and no more reads are submitted.
func (f *File) Warm(ctx context.Context, ranges []Range) (warmed Warmed, err error) {
	err = f.use("warm", func() error {
		if err := f.mayWarm(ranges); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return causeOf(ctx)
		}
		ranges := slices.Clone(ranges) // The caller may have them back before the call is over.
		warm := func() (warmed Warmed, err error) {
			scan, err := f.scan(ranges)
			if err != nil {
				return warmed, err
			}
			return f.warmPages(ctx, scan)
		}
		warmed, err = detach(ctx, f, warm, nil)
		return err
	})
	return warmed, err
}

// mayWarm returns why ranges of the file cannot be warmed, as far as no system call tells.
func (f *File) mayWarm(ranges []Range) error {
	for _, r := range ranges {
		switch {
		case r.Off < 0:
			return errNegative
		case r.N < 0:
			return errLength
		}
	}
	if f.direct {
		return errWarmDirect
	}
	if f.dropsPages() {
		return errWarmDrops
	}
	return nil
}

// scan begins a scan of the ranges. A server may keep it waiting.
func (f *File) scan(ranges []Range) (scan pageScan, err error) {
	info, err := f.file.Stat()
	if err != nil {
		return scan, err
	}
	if !info.Mode().IsRegular() {
		return scan, errNotRegular
	}
	return newPageScan(ranges, info.Size(), int64(os.Getpagesize())), nil
}

// warmPages reads the pages of a scan that are missing. The file is held open.
func (f *File) warmPages(ctx context.Context, scan pageScan) (warmed Warmed, err error) {
	// Nobody looks at the bytes: the reads of the queues share one buffer.
	buffer, err := f.engine.borrow(maxRun)
	if err != nil {
		return warmed, err
	}
	defer buffer.release()
	for err == nil {
		if ctx.Err() != nil {
			return warmed, causeOf(ctx)
		}
		reads := f.missing(ctx, &scan)
		if ctx.Err() != nil { // The scan may not have come to its end.
			return warmed, causeOf(ctx)
		}
		if len(reads) == 0 {
			break
		}
		batch := make([]Transfer, len(reads))
		for i, r := range reads {
			batch[i] = Transfer{P: buffer.memory[:r.len()], Off: r.start}
		}
		if f.supportsBatch(opRead) {
			f.submitBatch(ctx, opRead, batch)
		}
		f.readInParallel(ctx, batch)
		for i, r := range reads {
			warmed.add(r, &batch[i])
		}
		if f.engine.closed.Load() {
			err = ErrEngineClosed
		}
	}
	warmed.Cached = scan.cached
	if err == nil && len(warmed.Failed) > 0 {
		err = warmed.Failed[0].Err
	}
	return warmed, err
}

// missing continues a scan until there are enough reads, or to its end.
func (f *File) missing(ctx context.Context, scan *pageScan) (reads []extent) {
	var p [2]byte
	for bytes := int64(0); len(reads)+1 < warmReads && bytes < warmBytes && ctx.Err() == nil; {
		off, n := scan.next()
		if n == 0 {
			break
		}
		cached := 0
		if cachedReads {
			cached, _ = readCached(f.fd, p[:n], off, 0)
		}
		first, rest := scan.advance(cached)
		if first.start < first.end {
			reads = append(reads, first) // Whole: some of its blocks may be there.
		}
		if rest.start < rest.end {
			reads = append(reads, rest)
		}
		bytes += rest.end - first.start
	}
	return reads
}

// readInParallel makes, by goroutines, the reads that no queue has made, or not to their end.
func (f *File) readInParallel(ctx context.Context, batch []Transfer) {
	left := make(chan *Transfer, len(batch))
	for i := range batch {
		if t := &batch[i]; t.Err == nil && t.N < len(t.P) {
			left <- t
		}
	}
	close(left)
	var group sync.WaitGroup
	var err error
	for range min(len(left), warmCalls) {
		var buffer block
		if buffer, err = f.engine.borrow(maxRun); err != nil {
			break // The goroutines before this one, if there are any, make all reads.
		}
		group.Go(func() {
			defer buffer.release()
			for t := range left {
				p := buffer.memory[:len(t.P)-t.N]
				n, err := f.readAt(ctx, p, t.Off+int64(t.N))
				t.N += n
				if err != io.EOF { // Meanwhile the file has become shorter.
					t.Err = f.fail("read", err)
				}
			}
		})
	}
	group.Wait()
	for t := range left {
		t.Err = f.fail("read", err)
	}
}

// add adds the result of a read.
func (w *Warmed) add(r extent, t *Transfer) {
	switch {
	case t.Err != nil:
		w.fail(Range{r.start, r.end - r.start}, t.Err)
	default:
		w.Read += int64(t.N)
	}
}

// fail adds an error; to the last one if it has the same cause and the range follows.
func (w *Warmed) fail(r Range, err error) {
	if n := len(w.Failed); n > 0 {
		last := &w.Failed[n-1]
		if last.Off+last.N == r.Off && errors.Unwrap(last.Err) == errors.Unwrap(err) {
			last.N += r.N
			return
		}
	}
	w.Failed = append(w.Failed, UnreadRange{r, err})
}
