//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// The order of effects: appends, writes at the current position, and writes that extend the file.

package ringway

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/tests"
)

// queueBackends are those with a queue.
var queueBackends = []Backend{BackendURing, BackendKAIO}

// Many batches are appended to one file, through two Files. The records of each batch are adjacent
// and in order.
func TestAppendBatch(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		name := fileWith(t, nil)
		var files []*File
		for range 2 {
			f := open(t, e, name, os.O_WRONLY|os.O_APPEND|direct)
			// A small limit: a batch that is larger than a request of the device still is one
			// write.
			setLargestRequest(f, 16<<10)
			files = append(files, f)
		}
		const writers, rounds = 8, 6
		blocks := []int{1, 3, 40, 1100} // 1100 records are more than one system call accepts.
		tests.Together(writers, func(w int) {
			for round := range rounds {
				n := blocks[(w+round)%len(blocks)]
				p := numbered(w, round, n)
				if w%2 == 1 { // A buffer that is not aligned.
					p = append(make([]byte, 1, len(p)+1), p...)[1:]
				}
				f := files[w%len(files)]
				if w >= 6 { // Plain appends at the same time.
					check(t, errorOf(f.Write(p)))
					continue
				}
				batch := make([]Transfer, n)
				for i := range batch {
					batch[i] = Transfer{P: p[i*pageSize:][:pageSize], Off: int64(1000 - i)}
				}
				check(t, f.WriteBatch(batch, Durability(round%3)))
				allWritten(t, batch)
			}
		})
		got, next, seen := content(t, files[0]), map[uint32]uint32{}, 0
		for at := 0; at < len(got); seen++ {
			w, round := binary.LittleEndian.Uint32(got[at:]), binary.LittleEndian.Uint32(got[at+4:])
			want := numbered(int(w), int(round), blocks[(int(w)+int(round))%len(blocks)])
			require(t, next[w] == round && bytes.HasPrefix(got[at:], want),
				"block %d: round %d of writer %d, not contiguous, or not round %d", at/pageSize,
				round, w, next[w])
			next[w]++
			at += len(want)
		}
		expect(t, seen == writers*rounds, "%d of %d batches are there", seen, writers*rounds)
	})
}

// allWritten fails the test if a transfer of a batch is not complete.
func allWritten(t *testing.T, batch []Transfer) {
	t.Helper()
	for i := range batch {
		expect(t, batch[i].N == len(batch[i].P) && batch[i].Err == nil, "%v, %v, %v", i, batch[i].N,
			batch[i].Err)
	}
}

// A group commit of a log is one write, not one for each record, unless a queue writes the records
// side by side.
func TestBatchOfOneRangeIsOneWrite(t *testing.T) {
	writes := func() int {
		text, err := os.ReadFile("/proc/self/io")
		if err != nil {
			skip.Test(t, err)
		}
		_, after, _ := strings.Cut(string(text), "syscw: ")
		line, _, _ := strings.Cut(after, "\n")
		n := get(strconv.Atoi(line))(t)
		return n
	}
	each(t, func(t *testing.T, e *Engine, direct int) {
		const parts = 200
		f := openIn(t, e, make([]byte, parts*pageSize), os.O_RDWR|direct)
		memory, batch := alignedSlice(parts*pageSize, pageSize), make([]Transfer, parts)
		for i := range batch {
			p := memory[i*pageSize:][:pageSize]
			batch[i] = Transfer{P: p, Off: int64(i) * pageSize}
			copy(p, bytes.Repeat([]byte{byte(i)}, pageSize))
		}
		for _, end := range []Durability{NoSync, DataSync, FullSync} {
			before, pushed := writes(), e.Stats().Pushed
			must(t, f.WriteBatch(batch, end))
			// (With a queue, the system calls are the runtime's, which wakes its threads.)
			if n := writes() - before; e.Stats().Pushed-pushed < parts && n > parts/4 {
				t.Errorf("%d writes for a batch of %d", n, parts)
			}
			allWritten(t, batch)
			require(t, bytes.Equal(content(t, f), memory), "the file differs")
		}
	})
}

// If an append fails, the transfers that are not written have the error, and nothing is synced.
func TestAppendBatchFails(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		full := open(t, e, "/dev/full", os.O_WRONLY|os.O_APPEND)
		batch := []Transfer{{P: make([]byte, 10)}, {}, {P: make([]byte, 10)}}
		wantError(t, "WriteBatch", full.WriteBatch(batch, FullSync), syscall.ENOSPC)
		wantError(t, "its last transfer", batch[2].Err, syscall.ENOSPC)
		wantError(t, "its empty transfer", batch[1].Err, nil)
		check(t, openIn(t, e, nil, os.O_WRONLY|os.O_APPEND|direct).WriteBatch(nil, FullSync))
	})
}

// Writes whose order matters go to a queue one after the other.
func TestWritesAreOrdered(t *testing.T) {
	writeAt := func(f *File, p []byte) (int, error) { return f.WriteAt(p, 0) }
	for _, c := range []struct {
		name       string
		flag, size int
		write      func(f *File, p []byte) (int, error)
	}{
		{"at the position", 0, 8 << 20, (*File).Write},
		{"appended", os.O_APPEND, 0, (*File).Write},
		{"copied", 0, 8 << 20, func(f *File, p []byte) (int, error) {
			n, err := f.ReadFrom(bytes.NewReader(p))
			return int(n), err
		}},
		{"longer than the file", 0, 0, writeAt},
		{"within the file", 0, 8 << 20, writeAt},
	} {
		for _, backend := range queueBackends {
			t.Run(fmt.Sprint(backend, " ", c.name), func(t *testing.T) {
				e, s := scriptedEngine(t, Options{Backend: backend})
				f := openIn(t, e, make([]byte, c.size), os.O_RDWR|Direct|c.flag)
				setLargestRequest(f, 64<<10)
				now, most := 0, 0
				isWrite := func(r *request) bool {
					return r.opcode == opWrite || r.opcode == opWritev
				}
				s.onPush(func(r *request) bool {
					if isWrite(r) {
						now++
						most = max(most, now)
					}
					return false
				})
				s.onResult(func(r *request) bool {
					if isWrite(r) {
						now--
					}
					return false
				})
				want := numbered(1, 2, 1024)
				moves(t, len(want))(c.write(f, want))
				expect(t, most <= 1 && bytes.HasPrefix(content(t, f), want),
					"%d writes in flight at once, or wrong bytes", most)
			})
		}
	}
}

// Appending a batch moves the current position to the end of the file, as Write does, whatever the
// shape of the batch.
func TestAppendBatchMovesThePosition(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, make([]byte, pageSize), os.O_RDWR|os.O_APPEND|direct)
		many := make([]Transfer, 2000)
		many[7].P = page()
		for _, batch := range [][]Transfer{
			{{P: page()}},
			{{P: page()}, {P: alignedSlice(2*pageSize, pageSize), Off: 1 << 40}},
			{{P: alignedSlice(pageSize+100, pageSize)[100:]}},
			many,
		} {
			must(t, f.WriteBatch(batch, NoSync))
			info := get(f.Stat())(t)
			at := get(f.Seek(0, io.SeekCurrent))(t)
			expect(t, at == info.Size(), "the position is %d, the size %d", at, info.Size())
		}
	})
}

// A write fails in the middle, as on a full disk that has no block for a hole of the file. Nothing
// behind the failure is written, even if it could be: the file holds the n bytes, and what it held
// before.
func TestWriteFailsHalfWay(t *testing.T) {
	for _, backend := range queueBackends {
		const hole = 128 << 10
		e, s := scriptedEngine(t, Options{Backend: backend})
		before, written := numbered(1, 2, 256), numbered(3, 4, 256)
		f := openIn(t, e, before, os.O_RDWR|Direct)
		setLargestRequest(f, 64<<10)
		s.onPush(func(r *request) bool {
			switch {
			case r.opcode != opWrite:
			case r.off == hole:
				r.result = -int32(syscall.ENOSPC)
				go s.complete([]*request{r})
				return true
			case r.off < hole && r.off+int64(len(r.p)) > hole:
				r.p = r.p[:hole-r.off]
			}
			return false
		})
		n, err := f.WriteAt(written, 0)
		expect(t, n == hole && errors.Is(err, syscall.ENOSPC), "%v, %v, %v", backend, n, err)
		expect(t, bytes.Equal(content(t, f), append(written[:hole:hole], before[hole:]...)),
			"%v: data behind the counted bytes was written", backend)
	}
}

// setAppend sets O_APPEND with fcntl, after package os has opened the file.
func setAppend(t *testing.T, fd uintptr, direct int) {
	t.Helper()
	flags := uintptr(syscall.O_APPEND | direct)
	if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, fd, syscall.F_SETFL, flags); errno != 0 {
		skip.Test(t, errno)
	}
}

// If O_APPEND is set with fcntl while the file is open, WriteAt appends in order, as with os.File.
// If it was set before, WriteAt fails, and the file stays open.
func TestAppendFlagSetLater(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		const blocks = 1024
		f := openIn(t, e, make([]byte, blocks*pageSize), os.O_RDWR|direct)
		if direct != 0 {
			setLargestRequest(f, 64<<10)
		}
		setAppend(t, f.Fd(), direct)
		var want []byte
		for round := range 8 {
			p := numbered(1, round, blocks)
			want = append(want, p...)
			moves(t, len(p))(f.WriteAt(p, 0))
		}
		expect(t, bytes.Equal(content(t, f)[blocks*pageSize:], want),
			"wrong bytes, or in another order")

		file := get(os.OpenFile(f.Name(), os.O_RDWR, 0))(t)
		setAppend(t, file.Fd(), direct)
		before := get(e.NewFile(file))(t)
		n, err := before.WriteAt(page(), 0)
		expect(t, n == 0 && err != nil, "%d, %v", n, err)
		moves(t, pageSize)(before.Write(page()))
		begin(t, "File.Close", before.Close)(nil)
	})
}

// One piece of a transfer arrives late, three times, while the others complete. Nothing is lost,
// whatever its result is.
func TestLatePieces(t *testing.T) {
	for _, backend := range queueBackends {
		for _, op := range []opcode{opRead, opWrite} {
			for _, late := range []int32{-int32(syscall.EAGAIN), -int32(syscall.EINTR),
				-int32(syscall.ECANCELED), -int32(syscall.EIO), 4096, 0, unsupported} {
				t.Run(fmt.Sprint(backend, " ", opcodeName(op), " ", late),
					func(t *testing.T) { latePieces(t, backend, op, late) })
			}
		}
	}
}

func latePieces(t *testing.T, backend Backend, op opcode, late int32) {
	e, s := scriptedEngine(t, Options{Backend: backend})
	want := numbered(1, 2, 1024)
	f := openIn(t, e, want, os.O_RDWR|Direct)
	setLargestRequest(f, 64<<10)
	// Held back until all other pieces are complete, so that nothing else is in flight.
	lateCount := 0
	s.onResult(func(r *request) bool {
		if r.opcode != op || lateCount == 3 || r.off%(512<<10) != 0 || len(r.p) <= 4096 ||
			r.result < 0 {
			return false
		}
		lateCount++
		r.result = late
		if late == 0 && op == opRead {
			r.result = 4096
		}
		go func() {
			for e.Stats().InFlight > 1 {
				time.Sleep(100 * time.Microsecond)
			}
			s.complete(s.takeHeld())
		}()
		return true
	})
	got := alignedSlice(len(want), pageSize)
	var n int
	var err error
	if op == opRead {
		n, err = f.ReadAt(got, 0)
	} else {
		want = numbered(3, 4, 1024)
		n, err = f.WriteAt(want, 0)
		got = content(t, f)
	}
	require(t, lateCount != 0, "no piece was late")
	if late == -int32(syscall.EIO) || late == 0 && op == opWrite {
		expect(t, err != nil && (n == 0 || late == 0), "%d, %v", n, err)
	} else {
		expect(t, n == len(want) && err == nil && bytes.Equal(got, want), "%d, %v", n, err)
	}
}
