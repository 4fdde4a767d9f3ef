//go:build linux

// Package kernel tells the kernel's version.
package kernel

import (
	"strconv"
	"strings"
	"syscall"
)

// AtLeast reports whether the kernel has this version or a later one; false if that is unknown.
func AtLeast(major, minor int) bool {
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
	return isSince(release.String(), major, minor)
}

// isSince reports whether a release, such as "6.1.0-18-amd64", is of this version or a later one.
func isSince(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	second, _, _ := strings.Cut(rest, ".")
	if end := strings.IndexFunc(second, func(c rune) bool { return c < '0' || c > '9' }); end >= 0 {
		second = second[:end]
	}
	a, _ := strconv.Atoi(first)
	b, _ := strconv.Atoi(second)
	return a > major || a == major && b >= minor
}
