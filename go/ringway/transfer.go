//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

// Reads and writes: which way they go, and what is made of their answers.

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// ReadAt is [os.File.ReadAt]: n < len(p) comes with an error, at the end of the file with io.EOF. With direct I/O neither
// the offset nor the buffer needs an alignment; where they have none, ringway reads what encloses it and copies.
func (f *File) ReadAt(p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if off < 0 {
		return 0, f.fail("readat", errNegative)
	}
	if !f.begin() {
		return 0, f.fail("read", os.ErrClosed)
	}
	n, err = f.readAt(always, p, off)
	f.end()
	if err != nil {
		err = f.fail("read", err)
	}
	return n, err
}

// ReadAtContext is ReadAt, and returns the context's cause as soon as that ends. A context that can end has its price: what is
// not in the page cache is read by a goroutine of its own into memory of ringway's, and copied, since the kernel may write
// there after the return. p is the caller's again in any case. [File.ReadBuf] saves the copy.
func (f *File) ReadAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if ctx.Done() == nil {
		return f.ReadAt(p, off)
	}
	if off < 0 {
		return 0, f.fail("readat", errNegative)
	}
	if !f.begin() {
		return 0, f.fail("read", os.ErrClosed)
	}
	defer f.end()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	for n < len(p) && err == nil {
		if m := f.cachedNow(p[n:], off+int64(n)); m > 0 {
			n += m
			if ctx.Err() != nil && n < len(p) {
				err = context.Cause(ctx)
			}
			continue
		}
		var buffer *Buffer
		buffer, err = f.readOwned(ctx, f.engine.NewBuffer(min(len(p)-n, mostOwned)), off+int64(n))
		if buffer != nil {
			n += copy(p[n:], buffer.p)
			buffer.Release()
		}
	}
	return n, f.fail("read", err)
}

// mostOwned is how much is read or written at once by way of memory of ours, because of a context.
const mostOwned = 4 << 20

// readOwned fills a buffer, or releases it. The file is held open.
func (f *File) readOwned(ctx context.Context, buffer *Buffer, off int64) (*Buffer, error) {
	return detach(ctx, f, func() (*Buffer, error) { return f.fillOwned(ctx, buffer, off) }, releaseLate)
}

func (f *File) fillOwned(ctx context.Context, buffer *Buffer, off int64) (*Buffer, error) {
	n, err := f.readAt(ctx, buffer.p, off)
	if err != nil && err != io.EOF {
		buffer.Release()
		return nil, err
	}
	buffer.p = buffer.p[:n]
	return buffer, err
}

// readLong reads n bytes, or fewer at the end of the file, into as much memory as the file can fill.
func (f *File) readLong(ctx context.Context, off int64, n int) (*Buffer, error) {
	length, err := readLength(f.file, off, n)
	if err != nil {
		return nil, err
	}
	buffer, err := f.fillOwned(ctx, f.engine.NewBuffer(length), off)
	if err == nil && length < n {
		err = io.EOF
	}
	return buffer, err
}

// cachedNow reads what the page cache has of the beginning of p, and never blocks.
func (f *File) cachedNow(p []byte, off int64) int {
	if !f.storage || f.direct || f.engine.options.AlwaysRing || !cachedReads || f.cache.way() == away {
		return 0
	}
	n, _ := f.lookUp(p, off)
	return n
}

// readAt is ReadAt in a file that is held open.
func (f *File) readAt(ctx context.Context, p []byte, off int64) (n int, err error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case !f.storage:
		return f.file.ReadAt(p, off)
	case f.direct && f.fits(p, off) && ctx.Err() == nil:
		// What is to be expected, with a short stack: a goroutine that waits keeps it.
		if n, err = f.transfer(ctx, read, p, off); err == nil && n < len(p) {
			var more int
			more, err = f.fill(ctx, p[n:], off+int64(n))
			n += more
		}
		return n, err
	}
	return f.fill(ctx, p, off)
}

// fill reads until p is full or the file ends.
func (f *File) fill(ctx context.Context, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		m, err := f.readSome(ctx, p[n:], off+int64(n))
		n += m
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, io.EOF
		}
	}
	return n, nil
}

// readSome reads once; 0 is the end of the file.
func (f *File) readSome(ctx context.Context, p []byte, off int64) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if f.direct {
		return f.readDirect(ctx, p, off)
	}
	if n, ok := f.tryCached(p, off); ok {
		return n, nil
	}
	return f.transfer(ctx, read, p, off)
}

// tryCached reads what the page cache has of the beginning of p.
func (f *File) tryCached(p []byte, off int64) (int, bool) {
	if f.engine.options.AlwaysRing || !cachedReads {
		return 0, false
	}
	switch f.cache.way() {
	case away:
		return 0, false
	case plain:
		n, err := blocking(read, f.fd, p[:min(len(p), atOnce)], off)
		return n, err == nil // An error comes again, where it is seen to.
	}
	return f.lookUp(p, off)
}

// cachedFirst reads what the page cache has of the beginning of p; it may block only if the context cannot end.
func (f *File) cachedFirst(ctx context.Context, p []byte, off int64) int {
	if ctx.Done() != nil || !f.storage || f.direct {
		return f.cachedNow(p, off)
	}
	n, _ := f.tryCached(p, off)
	return n
}

// lookUp reads what the page cache has of the beginning of p, and learns from it.
func (f *File) lookUp(p []byte, off int64) (int, bool) {
	n, errno := readCached(f.fd, p, off)
	if errno != 0 {
		f.cache.miss()
		return 0, false
	}
	f.cache.hit()
	return n, true
}

// cachedReads: before 5.11, RWF_NOWAIT may answer 0 where the file does not end.
var cachedReads = kernelFrom(5, 11)

func kernelFrom(major, minor int) bool {
	var name syscall.Utsname
	if syscall.Uname(&name) != nil {
		return false
	}
	var release strings.Builder
	for _, c := range name.Release {
		if c == 0 {
			break
		}
		release.WriteByte(byte(c))
	}
	first, rest, _ := strings.Cut(release.String(), ".")
	second, _, _ := strings.Cut(rest, ".")
	if end := strings.IndexFunc(second, func(c rune) bool { return c < '0' || c > '9' }); end >= 0 {
		second = second[:end]
	}
	a, _ := strconv.Atoi(first)
	b, _ := strconv.Atoi(second)
	return a > major || a == major && b >= minor
}

// transfer is one read or write through the engine, or by a plain system call where no shard carries it.
func (f *File) transfer(ctx context.Context, kind kind, p []byte, off int64) (int, error) {
	if len(p) > maxTransfer {
		p = p[:maxTransfer]
	}
	e := f.engine
	if e.closed.Load() {
		return 0, ErrEngineClosed
	}
	if e.carries(f, kind, off) {
		if kind == write {
			looked(p)
		}
		s := e.shard()
		if ctx.Done() == nil && e.few(s) {
			n, err := blocking(kind, f.fd, p, off)
			e.plain.Add(-1)
			return n, err
		}
		result, err := e.fly(ctx, s, f.request(kind, p, off))
		if err != nil {
			return 0, err
		}
		if result != cannotCarry {
			if kind == read {
				written(p[:result])
			}
			return int(result), nil
		}
	}
	if err := e.calls.begin(ctx); err != nil {
		return 0, err
	}
	defer e.calls.end()
	return blocking(kind, f.fd, p, off)
}

// few takes a place among the plain calls of few transfers, if there is one; it is given back by plain.Add(-1).
func (e *Engine) few(s *shard) bool {
	if e.options.AlwaysRing || s.crowd.many.Load() {
		return false
	}
	for n := e.plain.Load(); n < fewest; n = e.plain.Load() {
		if e.plain.CompareAndSwap(n, n+1) {
			return true
		}
	}
	s.crowd.set(true)
	return false
}

// carries tells whether shards carry transfers of this kind without blocking whoever submits. KAIO does direct ones alone.
// Buffered writes are a copy, which the kernel gives to a thread of its own at many times the price if a ring asks for it.
func (e *Engine) carries(f *File, kind kind, off int64) bool {
	switch {
	case len(e.shards) == 0:
		return false
	case f.direct:
		return off != atCursor // A ring does not move the file's own position after a direct transfer.
	}
	return e.backend == Uring && kind == read
}

// alignment is what direct I/O asks for.
type alignment struct {
	memory, offset int
	largest        int // Bytes of one request of the device; more is split.
}

func (f *File) alignment() alignment {
	f.device.Do(func() {
		f.needs.memory, f.needs.offset = directAlignment(f.fd)
		if f.needs.memory == 0 || f.needs.offset == 0 {
			f.needs.memory, f.needs.offset = pageSize, pageSize // Nobody tells; a page is right everywhere.
		}
		f.needs.largest = largestRequest(f.fd) &^ (f.needs.offset - 1)
	})
	return f.needs
}

// largestRequest of the device below, or what most have.
func largestRequest(fd int) int {
	const usual = 512 << 10
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) != nil {
		return usual
	}
	device := uint64(stat.Dev)
	if stat.Mode&syscall.S_IFMT == syscall.S_IFBLK {
		device = uint64(stat.Rdev)
	}
	major := device>>8&0xfff | device>>32&^0xfff
	minor := device&0xff | device>>12&^0xff
	for _, below := range []string{"queue", "../queue"} { // A partition's is its disk's.
		text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/%s/max_sectors_kb", major, minor&0xffffffff, below))
		if err != nil {
			continue
		}
		if kib, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && kib >= 4 {
			return kib << 10
		}
	}
	return usual
}

// fits tells whether a direct transfer may go as it is.
func (a alignment) fits(p []byte, off int64) bool {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(p))))&(a.memory-1) == 0 && int(off)&(a.offset-1) == 0 &&
		len(p)&(a.offset-1) == 0
}

// fits tells whether a direct transfer may go as it is, in one piece.
func (f *File) fits(p []byte, off int64) bool {
	a := f.alignment()
	return a.fits(p, off) && len(p) <= a.largest
}

// around is the most that is read or written in one go by way of a buffer of ours.
const around = 1 << 20

// readDirect reads once, with io.EOF where the end is known.
func (f *File) readDirect(ctx context.Context, p []byte, off int64) (int, error) {
	a := f.alignment()
	if a.fits(p, off) {
		return f.readAligned(ctx, a, p, off)
	}
	p = p[:min(len(p), around)]
	start := off &^ int64(a.offset-1)
	skip := int(off - start)
	size := (skip + len(p) + a.offset - 1) &^ (a.offset - 1)
	buffer := f.engine.lend(size)
	defer buffer.giveBack()
	got := 0
	for got < skip+len(p) {
		n, err := f.readAligned(ctx, a, buffer.memory[got:size], start+int64(got))
		got += n
		if err == io.EOF || err == nil && n == 0 {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	if got <= skip {
		return 0, nil
	}
	n := copy(p, buffer.memory[skip:got])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// window is how many pieces of one transfer are in flight together.
const window = 8

// readAligned reads what fits, in pieces where it is larger than the device takes.
func (f *File) readAligned(ctx context.Context, a alignment, p []byte, off int64) (int, error) {
	n, err := 0, error(nil)
	if len(p) <= a.largest || !f.engine.carries(f, read, off) {
		n, err = f.transfer(ctx, read, p, off)
	} else {
		n, err = f.pieces(ctx, a, p, off)
	}
	if err == nil && n < len(p) && n&(a.offset-1) != 0 {
		return n, io.EOF // A direct read stops within a block at the end of the file alone.
	}
	return n, err
}

// pieces is a read of several requests. What counts is the unbroken beginning, and the error of the first that failed.
func (f *File) pieces(ctx context.Context, a alignment, p []byte, off int64) (n int, err error) {
	p = p[:min(len(p), window*a.largest)]
	all := make([]*request, 0, window)
	for at := 0; at < len(p); at += a.largest {
		all = append(all, f.request(read, p[at:min(at+a.largest, len(p))], off+int64(at)))
	}
	if err := f.engine.flyAll(ctx, all); err != nil {
		return 0, err
	}
	whole, byCall := true, false
	for _, r := range all {
		want := len(r.p)
		result, failed := f.engine.outcome(ctx, r)
		if !whole {
			continue
		}
		switch {
		case failed != nil:
			err = failed
		case result == cannotCarry:
			byCall = n == 0
		default:
			n += int(result)
		}
		whole = int(result) == want
	}
	written(p[:n])
	if byCall {
		if err := f.engine.calls.begin(ctx); err != nil {
			return 0, err
		}
		defer f.engine.calls.end()
		return blocking(read, f.fd, p, off)
	}
	return n, err
}

// WriteAt is [os.File.WriteAt]: it writes all of p, or tells why not. A direct write has to be aligned, and answers
// [Misaligned] otherwise; its buffer does not.
func (f *File) WriteAt(p []byte, off int64) (int, error) { return f.WriteAtContext(always, p, off) }

// WriteAtContext is WriteAt, and returns the context's cause as soon as that ends. A context that can end has its price: a copy
// of p is written, by a goroutine of its own. What was under way when the context ended may be written or not, also after the
// return.
func (f *File) WriteAtContext(ctx context.Context, p []byte, off int64) (n int, err error) {
	if err := f.writable(off); err != nil {
		return 0, err
	}
	defer f.end()
	if ctx.Done() == nil {
		n, err = f.writeAt(ctx, p, off)
		return n, f.fail("write", err)
	}
	if ctx.Err() != nil {
		return 0, f.fail("write", context.Cause(ctx))
	}
	if err := f.aligned(p, off); err != nil {
		return 0, f.fail("write", err)
	}
	for n < len(p) && err == nil {
		block := f.engine.lend(min(len(p)-n, mostOwned))
		piece, at := block.memory[:copy(block.memory, p[n:])], off+int64(n)
		var m int
		m, err = detach(ctx, f, func() (int, error) {
			defer block.giveBack()
			return f.writeAt(ctx, piece, at)
		}, nil)
		n += m
	}
	return n, f.fail("write", err)
}

// writable holds the file open for a write at an offset, or tells why not.
func (f *File) writable(off int64) error {
	switch {
	case f == nil:
		return os.ErrInvalid
	case off < 0:
		return f.fail("writeat", errNegative)
	case f.append:
		_, err := f.file.WriteAt(nil, off) // Which says what is wrong with that.
		return err
	case !f.begin():
		return f.fail("write", os.ErrClosed)
	}
	return nil
}

// writeAt is WriteAt in a file that is held open.
func (f *File) writeAt(ctx context.Context, p []byte, off int64) (int, error) {
	if !f.storage {
		return f.file.WriteAt(p, off)
	}
	if err := f.aligned(p, off); err != nil {
		return 0, err
	}
	return f.writeAll(ctx, p, off)
}

// aligned tells what is wrong with a direct write at an offset.
func (f *File) aligned(p []byte, off int64) error {
	if f.direct && f.storage {
		if a := f.alignment(); (int(off)|len(p))&(a.offset-1) != 0 {
			return &Misaligned{off, len(p), a.offset}
		}
	}
	return nil
}

// writeAll writes until all is written, one request after the other: where one fails nothing behind it is written, and a file that
// appends has it in order.
func (f *File) writeAll(ctx context.Context, p []byte, off int64) (n int, err error) {
	for n < len(p) {
		at := off
		if off != atCursor {
			at += int64(n)
		}
		m, err := f.writeSome(ctx, p[n:], at)
		n += m
		if err != nil {
			return n, err
		}
		if m == 0 {
			return n, io.ErrUnexpectedEOF
		}
	}
	return n, nil
}

func (f *File) writeSome(ctx context.Context, p []byte, off int64) (int, error) {
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	if !f.direct {
		return f.transfer(ctx, write, p, off)
	}
	if int(uintptr(unsafe.Pointer(unsafe.SliceData(p))))&(f.alignment().memory-1) != 0 {
		if off != atCursor { // What is appended is one write, so that nothing of others comes in between.
			p = p[:min(len(p), around)]
		}
		buffer := f.engine.lend(len(p))
		defer buffer.giveBack()
		p = buffer.memory[:copy(buffer.memory, p)]
	}
	return f.transfer(ctx, write, p, off)
}

// Read is [os.File.Read], at the file's own position.
func (f *File) Read(p []byte) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if !f.begin() {
		return 0, f.fail("read", os.ErrClosed)
	}
	defer f.end()
	if !f.storage {
		return f.file.Read(p)
	}
	if len(p) == 0 {
		return 0, nil
	}
	f.cursor.Lock()
	defer f.cursor.Unlock()
	if !f.direct {
		n, err = f.readSome(always, p, atCursor)
	} else {
		var at int64
		if at, err = syscall.Seek(f.fd, 0, io.SeekCurrent); err == nil {
			n, err = f.readDirect(always, p, at)
			if n > 0 {
				_, moved := syscall.Seek(f.fd, at+int64(n), io.SeekStart)
				if err == io.EOF {
					err = nil
				}
				err = cmp.Or(err, moved)
			}
		}
	}
	if n == 0 && err == nil {
		return 0, io.EOF
	}
	return n, f.fail("read", err)
}

// Write is [os.File.Write], at the file's own position.
func (f *File) Write(p []byte) (n int, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if !f.begin() {
		return 0, f.fail("write", os.ErrClosed)
	}
	defer f.end()
	if !f.storage || len(p) == 0 {
		return f.file.Write(p)
	}
	f.cursor.Lock()
	defer f.cursor.Unlock()
	if !f.direct || f.append {
		n, err = f.writeAll(always, p, atCursor)
		return n, f.fail("write", err)
	}
	at, err := syscall.Seek(f.fd, 0, io.SeekCurrent)
	if err == nil {
		err = f.aligned(p, at)
	}
	if err == nil {
		n, err = f.writeAll(always, p, at)
	}
	if n > 0 {
		_, moved := syscall.Seek(f.fd, at+int64(n), io.SeekStart)
		err = cmp.Or(err, moved)
	}
	return n, f.fail("write", err)
}

// WriteString is [os.File.WriteString].
func (f *File) WriteString(s string) (int, error) {
	return f.Write(unsafe.Slice(unsafe.StringData(s), len(s)))
}

// source is a file as package net and others know how to send one: with its descriptor, and without WriteTo, which would be
// called again.
type source struct{ f *File }

func (s source) Read(p []byte) (int, error)            { return s.f.Read(p) }
func (s source) SyscallConn() (syscall.RawConn, error) { return s.f.SyscallConn() }

// ReadFrom is [os.File.ReadFrom]: what the kernel can copy by itself it does. To a direct file it writes full buffers, however
// little r gives at once, so that the whole length alone has to be aligned.
func (f *File) ReadFrom(r io.Reader) (n int64, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if f.hold.closed() {
		return 0, f.fail("write", os.ErrClosed)
	}
	// The file is not held open: r may take for ever, and each write finds out by itself whether it is closed.
	// An error of r's is handed on as it is, so nothing is wrapped here.
	if f.direct {
		return f.gather(r)
	}
	switch from := r.(type) {
	case *File:
		if from != nil && !from.direct && !from.hold.closed() {
			r = from.file
		}
	case *io.LimitedReader: // As of io.CopyN.
		if under, ok := from.R.(*File); ok && under != nil && !under.direct && !under.hold.closed() {
			limited := &io.LimitedReader{R: under.file, N: from.N}
			defer func() { from.N = limited.N }()
			r = limited
		}
	}
	if f.storage && !hasDescriptor(r) {
		return io.Copy(writer{f}, r)
	}
	return f.file.ReadFrom(r)
}

// writer is a file without ReadFrom, which would be called again.
type writer struct{ f *File }

func (w writer) Write(p []byte) (int, error) { return w.f.Write(p) }

// hasDescriptor tells whether the kernel may be able to copy what r reads.
func hasDescriptor(r io.Reader) bool {
	if limited, ok := r.(*io.LimitedReader); ok {
		r = limited.R
	}
	_, ok := r.(syscall.Conn)
	return ok
}

// gather writes what r gives, in full buffers.
func (f *File) gather(r io.Reader) (n int64, err error) {
	buffer := f.engine.lend(copied)
	defer buffer.giveBack()
	p := buffer.memory
	for err == nil {
		filled := 0
		for filled < len(p) && err == nil {
			var m int
			m, err = r.Read(p[filled:])
			filled += m
		}
		m, failed := f.Write(p[:filled])
		n += int64(m)
		if failed != nil {
			return n, failed
		}
	}
	if err == io.EOF {
		err = nil
	}
	return n, err
}

// copied is how much is copied at once.
const copied = 256 << 10

// WriteTo is [os.File.WriteTo]: what the kernel can copy by itself it does. A writer that has ReadFrom (a connection, an
// http.ResponseWriter) is given the file with its descriptor, and may send it by sendfile(2).
func (f *File) WriteTo(w io.Writer) (n int64, err error) {
	if f == nil {
		return 0, os.ErrInvalid
	}
	if f.hold.closed() {
		return 0, f.fail("read", os.ErrClosed)
	}
	// The file is not held open: w may take for ever, and each read finds out by itself whether it is closed.
	if to, ok := w.(*File); ok && to != nil && !to.direct && !to.hold.closed() {
		w = to.file
	}
	if _, descriptor := w.(syscall.Conn); descriptor && !f.direct {
		return f.file.WriteTo(w)
	}
	buffer := f.engine.lend(copied)
	defer buffer.giveBack()
	return io.CopyBuffer(w, source{f}, buffer.memory)
}

// ReadBuf reads n bytes at an offset, or fewer at the end of the file (with io.EOF), into a buffer of ringway's own. When the
// context ends it returns at once: the buffer stays ringway's until the kernel has let go of it. Release what it gives. An n
// beyond the end of a file costs no memory; one that the program's memory cannot hold ends the program, as with make.
func (f *File) ReadBuf(ctx context.Context, off int64, n int) (*Buffer, error) {
	if f == nil {
		return nil, os.ErrInvalid
	}
	if off < 0 || n < 0 {
		return nil, f.fail("readat", errNegative)
	}
	if !f.begin() {
		return nil, f.fail("read", os.ErrClosed)
	}
	defer f.end()
	if ctx.Err() != nil {
		return nil, f.fail("read", context.Cause(ctx))
	}
	if n > largestBlock {
		buffer, err := detach(ctx, f, func() (*Buffer, error) { return f.readLong(ctx, off, n) }, releaseLate)
		return buffer, f.fail("read", err)
	}
	buffer := f.engine.NewBuffer(n)
	if f.cachedNow(buffer.p, off) == n {
		return buffer, nil
	}
	buffer, err := f.readOwned(ctx, buffer, off)
	return buffer, f.fail("read", err)
}
