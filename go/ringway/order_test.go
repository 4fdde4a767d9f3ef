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
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// Many batches are appended to one file, through two Files. The records of each batch are adjacent
// and in order.
func TestAppendBatch(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		name := filepath.Join(t.TempDir(), "log")
		var files []*File
		for range 2 {
			f, err := e.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|direct, 0o600)
			if err != nil {
				skip.Test(t, err)
			}
			defer f.Close()
			// A small limit: a batch that is larger than a request of the device still is one
			// write.
			setLargestRequest(f, 16<<10)
			files = append(files, f)
		}
		const writers, rounds = 8, 6
		blocks := []int{1, 3, 40, 1100} // 1100 records are more than one system call accepts.
		var wg sync.WaitGroup
		for w := range writers {
			wg.Go(func() {
				for round := range rounds {
					n := blocks[(w+round)%len(blocks)]
					p := numbered(w, round, n)
					if w%2 == 1 { // A buffer that is not aligned.
						p = append(make([]byte, 1, len(p)+1), p...)[1:]
					}
					f := files[w%len(files)]
					var err error
					if w >= 6 { // Plain appends at the same time.
						_, err = f.Write(p)
					} else {
						var batch []Transfer
						for i := range n {
							batch = append(batch, Transfer{P: p[i*pageSize:][:pageSize],
								Off: int64(1000 - i)})
						}
						err = f.WriteBatch(batch, Durability(round%3))
						for i := range batch {
							if batch[i].N != pageSize || batch[i].Err != nil {
								t.Error(i, batch[i].N, batch[i].Err)
							}
						}
					}
					check(t, err)
				}
			})
		}
		wg.Wait()
		got, err := os.ReadFile(name)
		must(t, err)
		next := map[uint32]uint32{}
		seen := 0
		for at := 0; at < len(got); seen++ {
			w, round := binary.LittleEndian.Uint32(got[at:]), binary.LittleEndian.Uint32(got[at+4:])
			if next[w] != round {
				t.Fatalf("block %d: round %[3]d of writer %[2]d, expected %[4]d", at/pageSize, w,
					round, next[w])
			}
			next[w]++
			want := numbered(int(w), int(round), blocks[(int(w)+int(round))%len(blocks)])
			if len(got)-at < len(want) || !bytes.Equal(got[at:][:len(want)], want) {
				t.Fatalf("block %d: the batch of writer %d, round %d, is not contiguous",
					at/pageSize, w, round)
			}
			at += len(want)
		}
		if seen != writers*rounds {
			t.Errorf("%d of %d batches are there", seen, writers*rounds)
		}
	})
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
		n, err := strconv.Atoi(line)
		must(t, err)
		return n
	}
	each(t, func(t *testing.T, e *Engine, direct int) {
		const parts = 200
		name := filepath.Join(t.TempDir(), "log")
		must(t, os.WriteFile(name, make([]byte, parts*4096), 0o600))
		f, err := e.OpenFile(name, os.O_RDWR|direct, 0)
		if err != nil {
			skip.Test(t, err)
		}
		defer f.Close()
		memory := e.NewBuffer(parts * 4096)
		defer memory.Release()
		batch := make([]Transfer, parts)
		for i := range batch {
			batch[i] = Transfer{P: memory.Bytes()[i*4096 : (i+1)*4096], Off: int64(i) * 4096}
			for at := range batch[i].P {
				batch[i].P[at] = byte(i)
			}
		}
		for _, end := range []Durability{NoSync, DataSync, FullSync} {
			before, pushed := writes(), e.Stats().Pushed
			must(t, f.WriteBatch(batch, end))
			// (With a queue, the system calls are the runtime's, which wakes its threads.)
			if n := writes() - before; e.Stats().Pushed-pushed < parts && n > parts/4 {
				t.Errorf("%d writes for a batch of %d", n, parts)
			}
			for i := range batch {
				if batch[i].N != 4096 || batch[i].Err != nil {
					t.Fatal(i, batch[i].N, batch[i].Err)
				}
			}
			if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, memory.Bytes()) {
				t.Fatal("the file differs", err)
			}
		}
	})
}

// If an append fails, the transfers that are not written have the error, and nothing is synced.
func TestAppendBatchFails(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		full, err := e.OpenFile("/dev/full", os.O_WRONLY|os.O_APPEND, 0)
		must(t, err)
		defer full.Close()
		batch := []Transfer{{P: make([]byte, 10)}, {}, {P: make([]byte, 10)}}
		if err := full.WriteBatch(batch, FullSync); !errors.Is(err, syscall.ENOSPC) ||
			!errors.Is(batch[2].Err, syscall.ENOSPC) || batch[1].Err != nil {
			t.Error(err, batch)
		}
		f := openIn(t, e, nil, os.O_WRONLY|os.O_APPEND|direct)
		check(t, f.WriteBatch(nil, FullSync))
	})
}

// Writes whose order matters go to a queue one after the other.
func TestWritesAreOrdered(t *testing.T) {
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		for _, c := range []struct {
			name  string
			flag  int
			size  int
			write func(f *File, p []byte) (int, error)
		}{
			{"at the position", 0, 8 << 20, (*File).Write},
			{"appended", os.O_APPEND, 0, (*File).Write},
			{"copied", 0, 8 << 20, func(f *File, p []byte) (int, error) {
				n, err := f.ReadFrom(bytes.NewReader(p))
				return int(n), err
			}},
			{"longer than the file", 0, 0, func(f *File, p []byte) (int,
				error) {
				return f.WriteAt(p, 0)
			}},
			{"within the file", 0, 8 << 20, func(f *File, p []byte) (int,
				error) {
				return f.WriteAt(p, 0)
			}},
		} {
			t.Run(fmt.Sprint(backend, " ", c.name), func(t *testing.T) {
				e, s := scriptedEngine(t, Options{Backend: backend})
				f := openIn(t, e, make([]byte, c.size), os.O_RDWR|Direct|c.flag)
				setLargestRequest(f, 64<<10)
				now, most := 0, 0
				s.onPush(func(r *request) bool {
					if r.opcode == opWrite || r.opcode == opWritev {
						now++
						most = max(most, now)
					}
					return false
				})
				s.onResult(func(r *request) bool {
					if r.opcode == opWrite || r.opcode == opWritev {
						now--
					}
					return false
				})
				content := numbered(1, 2, 1024)
				if n, err := c.write(f, content); n != len(content) || err != nil {
					t.Fatal(n, err)
				}
				got := make([]byte, len(content))
				if n, err := f.ReadAt(got, 0); n != len(got) || err != nil && err != io.EOF ||
					!bytes.Equal(got, content) {
					t.Error("wrong bytes", n, err)
				}
				if most > 1 {
					t.Errorf("%d writes in flight at once", most)
				}
			})
		}
	}
}

// Appending a batch moves the current position to the end of the file, as Write does, whatever the
// shape of the batch.
func TestAppendBatchMovesThePosition(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := openIn(t, e, make([]byte, pageSize), os.O_RDWR|os.O_APPEND|direct)
		for _, batch := range [][]Transfer{
			{{P: alignedSlice(pageSize, pageSize)}},
			{{P: alignedSlice(pageSize, pageSize)},
				{P: alignedSlice(2*pageSize, pageSize), Off: 1 << 40}},
			{{P: alignedSlice(pageSize+100, pageSize)[100:]}},
			make([]Transfer, 2000),
		} {
			if len(batch) == 2000 {
				batch[7].P = alignedSlice(pageSize, pageSize)
			}
			must(t, f.WriteBatch(batch, NoSync))
			info, err := f.Stat()
			must(t, err)
			if at, err := f.Seek(0, io.SeekCurrent); at != info.Size() || err != nil {
				t.Errorf("the position is %d, the size %d (%v)", at, info.Size(), err)
			}
		}
		check(t, f.Close())
	})
}

// A write fails in the middle, as on a full disk that has no block for a hole of the file. Nothing
// behind the failure is written, even if it could be: the file holds the n bytes, and what it held
// before.
func TestWriteFailsHalfWay(t *testing.T) {
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		t.Run(string(backend), func(t *testing.T) {
			const hole = 128 << 10
			e, s := scriptedEngine(t, Options{Backend: backend})
			before, content := numbered(1, 2, 256), numbered(3, 4, 256)
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
			if n, err := f.WriteAt(content, 0); n != hole || !errors.Is(err, syscall.ENOSPC) {
				t.Error(n, err)
			}
			if got, err := os.ReadFile(f.Name()); err != nil ||
				!bytes.Equal(got, append(content[:hole:hole], before[hole:]...)) {
				t.Error("data behind the counted bytes was written", err)
			}
		})
	}
}

// If O_APPEND is set with fcntl while the file is open, WriteAt appends in order, as with os.File.
func TestAppendFlagSetLater(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		const blocks = 1024
		f := openIn(t, e, make([]byte, blocks*pageSize), os.O_RDWR|direct)
		if direct != 0 {
			setLargestRequest(f, 64<<10)
		}
		if _, _, errno := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_SETFL,
			uintptr(syscall.O_APPEND|direct)); errno != 0 {
			t.Fatal(errno)
		}
		var want []byte
		for round := range 8 {
			p := numbered(1, round, blocks)
			want = append(want, p...)
			if n, err := f.WriteAt(p, 0); n != len(p) || err != nil {
				t.Fatal(n, err)
			}
		}
		if got, err := os.ReadFile(f.Name()); err != nil ||
			!bytes.Equal(got[blocks*pageSize:], want) {
			t.Error("wrong bytes, or in another order", err)
		}
		check(t, f.Close())
	})
}

// One piece of a transfer arrives late, three times, while the others complete. Nothing is lost,
// whatever its result is.
func TestLatePieces(t *testing.T) {
	for _, backend := range []Backend{BackendURing, BackendKAIO} {
		for _, op := range []opcode{opRead, opWrite} {
			for _, late := range []int32{-int32(syscall.EAGAIN), -int32(syscall.EINTR),
				-int32(syscall.ECANCELED), -int32(syscall.EIO), 4096, 0, unsupported} {
				t.Run(fmt.Sprint(backend, " ", opcodeName(op), " ", late), func(t *testing.T) {
					e, s := scriptedEngine(t, Options{Backend: backend})
					content := numbered(1, 2, 1024)
					f := openIn(t, e, content, os.O_RDWR|Direct)
					setLargestRequest(f, 64<<10)
					// Held back until all other pieces are complete, so that nothing else is in
					// flight.
					lateCount := 0
					s.onResult(func(r *request) bool {
						if r.opcode == op && lateCount < 3 && r.off%(512<<10) == 0 &&
							len(r.p) > 4096 && r.result >= 0 {
							lateCount++
							s.count.Add(1)
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
						}
						return false
					})
					p := numbered(1, 2, 1024)
					var n int
					var err error
					if op == opRead {
						clear(p)
						n, err = f.ReadAt(p, 0)
					} else {
						p = numbered(3, 4, 1024)
						n, err = f.WriteAt(p, 0)
					}
					if lateCount == 0 {
						t.Fatal("no piece was late")
					}
					if late == -int32(syscall.EIO) || late == 0 && op == opWrite {
						if err == nil || n != 0 && late != 0 {
							t.Error(n, err)
						}
						return
					}
					if op == opWrite {
						if content, err = os.ReadFile(f.Name()); err != nil {
							t.Fatal(err)
						}
					}
					if n != len(p) || err != nil || !bytes.Equal(p, content) {
						t.Error("wrong bytes", n, err)
					}
				})
			}
		}
	}
}

// WriteAt fails on a file for which O_APPEND was set after package os had opened it, and the file
// stays open.
func TestWriteAtOfAppendingFile(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		file, err := os.OpenFile(filepath.Join(t.TempDir(), "log"), os.O_RDWR|os.O_CREATE, 0o600)
		must(t, err)
		flags := uintptr(syscall.O_APPEND | direct)
		_, _, errno := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), syscall.F_SETFL, flags)
		if errno != 0 {
			skip.Test(t, errno)
		}
		f, err := e.NewFile(file)
		must(t, err)
		if n, err := f.WriteAt(alignedSlice(pageSize, pageSize), 0); n != 0 || err == nil {
			t.Error(n, err)
		}
		if n, err := f.Write(alignedSlice(pageSize, pageSize)); n != pageSize || err != nil {
			t.Error(n, err)
		}
		closeFile(t, f)
	})
}
