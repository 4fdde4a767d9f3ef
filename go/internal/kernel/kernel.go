//go:build linux

// Package kernel tells tests what the kernel is.
package kernel

import (
	"fmt"
	"os"
)

// OlderThan reports whether the kernel is older than a version. It panics if that is unknown.
func OlderThan(major, minor int) bool {
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		panic(err)
	}
	var a, b int
	if _, err := fmt.Sscanf(string(release), "%d.%d", &a, &b); err != nil {
		panic(fmt.Sprintf("%q: %v", release, err))
	}
	return a < major || a == major && b < minor
}
