//go:build linux

// The language of the conformance cases, as conformance/README.md describes it, and loading the
// cases.

package ringway

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ringway-io/ringway/go/ring"
)

// The words of a step.

// caseFlags are constants by name. Those of open(2) differ between architectures.
var caseFlags = named(map[string]uint64{
	"O_RDONLY": syscall.O_RDONLY, "O_WRONLY": syscall.O_WRONLY, "O_RDWR": syscall.O_RDWR,
	"O_CREAT": syscall.O_CREAT, "O_EXCL": syscall.O_EXCL, "O_TRUNC": syscall.O_TRUNC,
	"O_APPEND": syscall.O_APPEND, "O_DIRECT": syscall.O_DIRECT, "O_SYNC": syscall.O_SYNC,
	"O_DIRECTORY": syscall.O_DIRECTORY, "O_NOFOLLOW": syscall.O_NOFOLLOW,
	"O_NONBLOCK": syscall.O_NONBLOCK, "O_NOATIME": syscall.O_NOATIME,
	"O_TMPFILE": 0o20000000 | syscall.O_DIRECTORY,
}, `O_PATH 010000000
	AT_REMOVEDIR 0x200 AT_SYMLINK_FOLLOW 0x400 AT_SYMLINK_NOFOLLOW 0x100 AT_EMPTY_PATH 0x1000
	AT_STATX_DONT_SYNC 0x4000 RENAME_NOREPLACE 1 RENAME_EXCHANGE 2 FALLOC_FL_KEEP_SIZE 1
	FALLOC_FL_PUNCH_HOLE 2 FALLOC_FL_ZERO_RANGE 0x10 FALLOC_FL_COLLAPSE_RANGE 8
	FALLOC_FL_INSERT_RANGE 0x20 POSIX_FADV_NORMAL 0 POSIX_FADV_RANDOM 1 POSIX_FADV_SEQUENTIAL 2
	POSIX_FADV_WILLNEED 3 POSIX_FADV_DONTNEED 4 POSIX_FADV_NOREUSE 5
	SYNC_FILE_RANGE_WAIT_BEFORE 1 SYNC_FILE_RANGE_WRITE 2 SYNC_FILE_RANGE_WAIT_AFTER 4
	POLLIN 1 POLLPRI 2 POLLOUT 4 POLLERR 8 POLLHUP 16 RESOLVE_NO_XDEV 1 RESOLVE_NO_MAGICLINKS 2
	RESOLVE_NO_SYMLINKS 4 RESOLVE_BENEATH 8 RESOLVE_IN_ROOT 16 STATX_BASIC_STATS 0x7ff
	STATX_SIZE 0x200 STATX__RESERVED 0x80000000`)

// caseErrnos are errnos by name, as in asm-generic/errno.h.
var caseErrnos = named(map[string]uint64{}, `EPERM 1 ENOENT 2 EIO 5 ENXIO 6 EBADF 9 EAGAIN 11
	EACCES 13 EBUSY 16 EEXIST 17 EXDEV 18 ENODEV 19 ENOTDIR 20 EISDIR 21 EINVAL 22 ETXTBSY 26
	EFBIG 27 ENOSPC 28 ESPIPE 29 EMLINK 31 EPIPE 32 ENAMETOOLONG 36 ENOTEMPTY 39 ELOOP 40
	EOVERFLOW 75 EOPNOTSUPP 95 ETIMEDOUT 110 ECANCELED 125`)

// named adds names, each with its number.
func named(all map[string]uint64, text string) map[string]uint64 {
	for pair := range slices.Chunk(strings.Fields(text), 2) {
		all[pair[0]] = caseNumber(pair[1])
	}
	return all
}

// wrong is thrown by functions that interpret the words of a case, and caught by its run.
type wrong string

func throw(format string, args ...any) { panic(wrong(fmt.Sprintf(format, args...))) }

// caseNumber evaluates terms joined by +, - and *, from left to right.
func caseNumber(text string) uint64 {
	var value uint64
	sign := byte('+')
	for rest := text; ; {
		end := strings.IndexAny(rest, "+-*")
		term := rest
		if end >= 0 {
			term = rest[:end]
		}
		n := caseTerm(term)
		switch sign {
		case '+':
			value += n
		case '-':
			value -= n
		case '*':
			value *= n
		}
		if end < 0 {
			return value
		}
		sign, rest = rest[end], rest[end+1:]
	}
}

func caseTerm(text string) uint64 {
	if text == "max" {
		return 1<<63 - 1
	}
	shift := 0
	if unit := strings.IndexAny(text, "KMGT"); unit >= 0 && unit == len(text)-1 &&
		!strings.HasPrefix(text, "0x") {
		shift = 10 * (1 + strings.Index("KMGT", text[unit:]))
		text = text[:unit]
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		throw("not a number: %s", text)
	}
	return n << shift
}

// caseBits evaluates names of constants joined by bars, or a number.
func caseBits(text string) (all uint64) {
	if text == "" {
		return 0
	}
	if text[0] >= '0' && text[0] <= '9' {
		return caseNumber(text)
	}
	for name := range strings.SplitSeq(text, "|") {
		value, ok := caseFlags[name]
		if !ok {
			throw("unknown constant: %s", name)
		}
		all |= value
	}
	return all
}

// contents caches contents, some of which are long. Nothing writes to them.
var contents = map[string][]byte{}

func caseContent(text string) []byte {
	b, ok := contents[text]
	if !ok {
		b = newContent(text)
		contents[text] = b
	}
	return b
}

func newContent(text string) (b []byte) {
	if text == "none" {
		return nil
	}
	for rest := text; rest != ""; {
		kind, tail, ok := strings.Cut(rest, "(")
		inside, tail, closed := strings.Cut(tail, ")")
		if !ok || !closed {
			throw("not a content: %s", text)
		}
		first, second, _ := strings.Cut(inside, ",")
		switch kind {
		case "text":
			b = append(b, inside...)
		case "hex":
			for at := 0; at < len(inside); at += 2 {
				n, err := strconv.ParseUint(inside[at:at+2], 16, 8)
				if err != nil {
					throw("not a content: %s", text)
				}
				b = append(b, byte(n))
			}
		case "fill":
			b = append(b, bytes.Repeat([]byte{byte(caseNumber(first))}, int(caseNumber(second)))...)
		case "pattern":
			b = appendPattern(b, caseNumber(first), caseNumber(second))
		default:
			throw("not a content: %s", text)
		}
		rest = strings.TrimPrefix(tail, "+")
	}
	return b
}

// appendPattern appends n bytes that depend on their positions. (The race detector would take most
// of the time of the suite here.)
//
//go:norace
func appendPattern(b []byte, at, n uint64) []byte {
	b = slices.Grow(b, int(n))
	for p := at; p < at+n; p++ {
		b = append(b, byte(p^p>>8^p>>16^p>>24))
	}
	return b
}

func casePath(text string) string {
	if text == `""` {
		return ""
	}
	if inside, ok := strings.CutPrefix(text, "long("); ok {
		return strings.Repeat("n", int(caseNumber(strings.TrimSuffix(inside, ")"))))
	}
	return text
}

// caseWords are the words of a step.
type caseWords []string

func (w caseWords) at(i int) string {
	if i >= len(w) {
		throw("a word is missing")
	}
	return w[i]
}

func (w caseWords) get(key string) (string, bool) {
	for _, word := range w {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return value, true
		}
	}
	return "", false
}

func (w caseWords) has(word string) bool { return slices.Contains(w, word) }

func (w caseWords) need(key string) string {
	value, ok := w.get(key)
	if !ok {
		throw("%s= is missing", key)
	}
	return value
}

func (w caseWords) number(key string) uint64 {
	value, _ := w.get(key)
	return caseNumber(cmp.Or(value, "0"))
}

func (w caseWords) bits(key string) uint64 {
	value, _ := w.get(key)
	return caseBits(value)
}

// offset returns the offset of a transfer; ring.CurrentPosition for the current position.
func (w caseWords) offset() int64 {
	if value, _ := w.get("offset"); value == "current" {
		return ring.CurrentPosition
	}
	return int64(w.number("offset"))
}

func (w caseWords) lengths() (all []int) {
	if lens, ok := w.get("lens"); ok {
		for part := range strings.SplitSeq(lens, ",") {
			if part == "none" {
				continue
			}
			times, n, many := strings.Cut(part, "x")
			if !many || times == "0" {
				all = append(all, int(caseNumber(part)))
				continue
			}
			all = append(all, slices.Repeat([]int{int(caseNumber(n))}, int(caseNumber(times)))...)
		}
		return all
	}
	if data, ok := w.get("data"); ok {
		return []int{len(caseContent(data))}
	}
	return []int{int(w.number("len"))}
}

// memory returns the buffers of a transfer. They begin at a multiple of 4096, or skew bytes behind
// one, and hold 0xee or the data to write.
func (w caseWords) memory() [][]byte {
	skew := int(w.number("skew"))
	data, writes := w.get("data")
	rest := caseContent(cmp.Or(data, "none"))
	buffers := [][]byte{}
	for _, n := range w.lengths() {
		raw := make([]byte, n+skew+4096)
		begin := -int(uintptr(unsafe.Pointer(unsafe.SliceData(raw)))) & 4095
		b := raw[begin+skew : begin+skew+n : begin+skew+n]
		copy(b, bytes.Repeat([]byte{0xee}, n))
		if writes {
			if len(rest) < n {
				throw("data= and lens= are of different lengths")
			}
			copy(b, rest)
			rest = rest[n:]
		}
		buffers = append(buffers, b)
	}
	return buffers
}

func sum(buffers [][]byte) (n int) {
	for _, b := range buffers {
		n += len(b)
	}
	return n
}

// fits reports whether a result is among the expected ones.
func fits(wanted string, result, plain int) bool {
	for one := range strings.SplitSeq(wanted, "/") {
		name, negative := strings.CutPrefix(one, "-")
		switch {
		case one == "fd" && result >= 0, one == "plain" && result == plain:
			return true
		case one == "fd", one == "plain":
		case negative:
			errno, ok := caseErrnos[name]
			if !ok {
				throw("unknown errno: %s", one)
			}
			if result == -int(errno) {
				return true
			}
		case strings.HasPrefix(one, "POLL"):
			if result == int(caseBits(one)) {
				return true
			}
		case result == int(caseNumber(one)):
			return true
		}
	}
	return false
}

func say(result int) string {
	if result >= 0 {
		return strconv.Itoa(result)
	}
	for name, errno := range caseErrnos {
		if result == -int(errno) {
			return "-" + name
		}
	}
	return fmt.Sprintf("%d (%v)", result, syscall.Errno(-result))
}

func same(found, wanted []byte, what string) error {
	if bytes.Equal(found, wanted) {
		return nil
	}
	at := 0
	for at < min(len(found), len(wanted)) && found[at] == wanted[at] {
		at++
	}
	return fmt.Errorf("%s differs at byte %d; lengths %d and %d", what, at, len(found), len(wanted))
}

// The cases.

type caseStep struct {
	line  int
	words caseWords
}

type conformanceCase struct {
	file, name string
	line       int
	steps      []caseStep
}

// operations calls each for the words of every operation of a case.
func (c *conformanceCase) operations(each func(step string, words caseWords)) {
	for _, s := range c.steps {
		if step := s.words[0]; step == "do" || step == "push" || step == "refuse" {
			words := s.words[1:]
			if strings.HasSuffix(words[0], ":") {
				words = words[1:]
			}
			each(step, words)
		}
	}
}

func (c *conformanceCase) has(step string) bool {
	return slices.ContainsFunc(c.steps, func(s caseStep) bool { return s.words[0] == step })
}

func (c *conformanceCase) option(name string) (string, bool) {
	for _, s := range c.steps {
		if s.words[0] == "queue" {
			return s.words.get(name)
		}
	}
	return "", false
}

func loadCases(t *testing.T) (cases []*conformanceCase) {
	files, err := filepath.Glob("../../conformance/*.case")
	require(t, err == nil && len(files) != 0, "no cases: %v", err)
	for _, file := range files {
		text := get(os.ReadFile(file))(t)
		var c *conformanceCase
		var repeat []caseStep
		rounds := -1
		number := 0
		for line := range strings.Lines(string(text)) {
			number++
			line = strings.TrimSpace(line)
			if name, ok := strings.CutPrefix(line, "case "); ok {
				c = &conformanceCase{file: filepath.Base(file), name: name, line: number}
				cases = append(cases, c)
				continue
			}
			if line == "" || line[0] == '#' {
				continue
			}
			step := caseStep{number, strings.Fields(line)}
			switch {
			case step.words[0] == "repeat":
				rounds, repeat = int(caseNumber(step.words[1])), nil
			case step.words[0] == "again":
				for round := range rounds {
					for _, s := range repeat {
						words := make(caseWords, len(s.words))
						for i, w := range s.words {
							words[i] = strings.ReplaceAll(w, "$", strconv.Itoa(round))
						}
						c.steps = append(c.steps, caseStep{s.line, words})
					}
				}
				rounds = -1
			case rounds >= 0:
				repeat = append(repeat, step)
			default:
				c.steps = append(c.steps, step)
			}
		}
	}
	return cases
}
