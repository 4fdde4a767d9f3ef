// What an errno means on this machine, from a table.

package refusal

import (
	_ "embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// table is a copy of the table of the Rust core, which explains its lines.
//
//go:embed refusals.txt
var table string

// limits is what this process may use. A zero value means that it is not known or that the kernel
// does not have it.
type limits struct {
	memlock          uint64
	memlockUnlimited bool
	nofile           uint64
	uringDisabled    string
	uringGroup       string
	aioMaxNr, aioNr  string
	capabilities     uint64
	// In another user namespace than the initial one, as in a rootless container, root's
	// capabilities do not count for the machine's resources.
	userNamespace bool
	seccomp       string
}

const (
	capIPCLock  = 1 << 14
	capSysAdmin = 1 << 21
)

// explain returns what errno means as the result of a request for feature, and the fix.
func explain(feature string, errno syscall.Errno, l limits) (meaning, fix string) {
	return textOf(errnoName(errno), feature, l)
}

// textOf returns the text of the first rule that fits.
func textOf(key, feature string, l limits) (meaning, fix string) {
	var text []string
	fits := false
	for line := range strings.Lines(table) {
		if !strings.HasPrefix(line, " ") {
			if fits {
				break
			}
			fits = ruleFits(line, key, feature, l)
		} else if fits {
			text = append(text, strings.TrimSpace(line))
		}
	}
	meaning, fix, _ = strings.Cut(strings.Join(text, " "), " fix: ")
	return expand(meaning, feature, l), expand(fix, feature, l)
}

// ruleFits reports whether a line is the head of a rule that fits.
func ruleFits(line, key, feature string, l limits) bool {
	keys, rest, _ := strings.Cut(line, "|")
	features, conditions, _ := strings.Cut(rest, "|")
	return anyWord(keys, func(word string) bool { return word == key || word == "*" }) &&
		anyWord(features, func(word string) bool {
			kind, isKind := strings.CutPrefix(word, "@")
			return word == feature || word == "*" || isKind && hasKind(feature, kind)
		}) &&
		!anyWord(conditions, func(word string) bool {
			word, negated := strings.CutPrefix(word, "!")
			return l.holds(word, feature) == negated
		})
}

// anyWord reports whether a word of a column is as asked.
func anyWord(column string, is func(word string) bool) bool {
	for word := range strings.SplitSeq(column, ",") {
		if is(strings.TrimSpace(word)) {
			return true
		}
	}
	return false
}

// featureOf returns the first kernel that has a feature, and its kinds.
func featureOf(feature string) (since, kinds string) {
	for line := range strings.Lines(table) {
		columns := strings.Split(line, "|")
		if len(columns) == 4 && strings.TrimSpace(columns[1]) == feature {
			return strings.Trim(columns[2], " -"), columns[3]
		}
	}
	return "", ""
}

func hasKind(feature, kind string) bool {
	_, kinds := featureOf(feature)
	return slices.Contains(strings.Fields(kinds), kind)
}

// holds reports whether a condition of a rule holds.
func (l *limits) holds(condition, feature string) bool {
	switch name, value, _ := strings.Cut(condition, "="); name {
	case "since":
		since, _ := featureOf(feature)
		return since != ""
	case "seccomp":
		return l.seccomp == "2"
	case "io_uring_disabled":
		return l.uringDisabled == value
	case "group":
		group, err := strconv.Atoi(l.uringGroup)
		return err == nil && group >= 0
	case "sys_admin":
		return l.capabilities&capSysAdmin != 0
	case "ipc_lock":
		return l.capabilities&capIPCLock != 0
	case "memlock":
		return !l.memlockUnlimited && !l.mayLockAllMemory()
	case "some_memlock":
		return !l.memlockUnlimited && l.memlock > 0 && !l.mayLockAllMemory()
	case "aio_max":
		return l.aioMaxNr != ""
	case "aio_nr":
		return l.aioNr != ""
	}
	return condition == "" // There is no condition.
}

// mayLockAllMemory reports whether RLIMIT_MEMLOCK does not apply: with CAP_IPC_LOCK in the initial
// user namespace.
func (l *limits) mayLockAllMemory() bool {
	return l.capabilities&capIPCLock != 0 && !l.userNamespace
}

// expand replaces the names in braces.
func expand(text, feature string, l limits) string {
	var expanded strings.Builder
	for {
		before, rest, found := strings.Cut(text, "{")
		expanded.WriteString(before)
		if !found {
			return expanded.String()
		}
		name, after, _ := strings.Cut(rest, "}")
		expanded.WriteString(l.valueOf(name, feature))
		text = after
	}
}

// valueOf returns what a name in braces stands for.
func (l *limits) valueOf(name, feature string) string {
	switch name {
	case "feature":
		return feature
	case "since":
		since, _ := featureOf(feature)
		return since
	case "group":
		return l.uringGroup
	case "nofile":
		if l.nofile == ^uint64(0) {
			return "unlimited"
		}
		return strconv.FormatUint(l.nofile, 10)
	case "memlock":
		return bytesText(l.memlock)
	case "aio_max":
		return l.aioMaxNr
	case "aio_nr":
		return l.aioNr
	case "aio_more":
		most, _ := strconv.ParseUint(l.aioMaxNr, 10, 62)
		return strconv.FormatUint(max(4*most, 1<<20), 10)
	}
	text, _ := textOf(name, feature, *l)
	return text
}

// bytesText formats a size in the largest exact unit.
func bytesText(bytes uint64) string {
	for _, unit := range []struct {
		size uint64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if bytes >= unit.size && bytes%unit.size == 0 {
			return fmt.Sprintf("%d %s", bytes/unit.size, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", bytes)
}
