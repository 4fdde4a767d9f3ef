// What PreallocateWritten writes, keeps and refuses.

package ringway

import (
	"bytes"
	"errors"
	"math"
	"os"
	"syscall"
	"testing"
)

// The file has zeroes behind its data, and no hole: blocks that are only allocated are one, as far
// as the file system tells holes.
func TestPreallocateWritten(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		data := bytesOf(2 * pageSize)
		f := openIn(t, e, data, os.O_RDWR|direct)
		must(t, f.PreallocateWritten(int64(len(data)), zeroesAtOnce+pageSize))
		want := append(bytes.Clone(data), make([]byte, zeroesAtOnce+pageSize)...)
		require(t, bytes.Equal(content(t, f), want), "not the data with zeroes behind it")
		must(t, f.PreallocateWritten(int64(len(want)), pageSize))
		info, _ := f.Stat()
		require(t, info.Size() == int64(len(want))+pageSize, "%v", info.Size())
		const seekHole = 4
		name := get(os.Open(f.Name()))(t)
		defer name.Close()
		if hole, err := name.Seek(0, seekHole); err == nil && hole != int64(len(want))+pageSize {
			t.Error("a hole at", hole)
		}
	})
}

// What could overwrite data is refused, and changes nothing.
func TestPreallocateWrittenRefuses(t *testing.T) {
	each(t, func(t *testing.T, e *Engine, direct int) {
		data := bytesOf(2 * pageSize)
		f := openIn(t, e, data, os.O_RDWR|direct)
		for _, off := range []int64{0, pageSize, 2*pageSize - 1} {
			err := f.PreallocateWritten(off, pageSize)
			if direct == 0 || off%pageSize == 0 {
				wantError(t, "before the end", err, errOverwrites)
			} else if err == nil {
				t.Error("a range before the end is not refused")
			}
		}
		for _, c := range [][2]int64{{-1, 10}, {2 * pageSize, 0}, {2 * pageSize, -1},
			{2 * pageSize, math.MaxInt64}, {math.MaxInt64, 1}} {
			wantError(t, "an impossible range", f.PreallocateWritten(c[0], c[1]), syscall.EINVAL)
		}
		if direct != 0 {
			var misaligned *MisalignedError
			err := f.PreallocateWritten(2*pageSize, 100)
			expect(t, errors.As(err, &misaligned), "a part of a block: %v", err)
		}
		expect(t, bytes.Equal(content(t, f), data), "the file was changed")
	})
}

func TestPreallocateWrittenOfOtherFiles(t *testing.T) {
	e := newOrSkip(t, Options{})
	log := openIn(t, e, []byte("data"), os.O_WRONLY|os.O_APPEND)
	wantError(t, "O_APPEND", log.PreallocateWritten(4, 10), errAppendZeroes)
	_, writing := pipe(t, e)
	wantError(t, "a pipe", writing.PreallocateWritten(0, 10), errNotRegular)
}
