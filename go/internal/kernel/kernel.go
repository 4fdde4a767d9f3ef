//go:build linux

// Package kernel tells tests what the kernel is.
package kernel

import (
	"fmt"
	"os"
	"testing"
)

// OlderThan reports whether the kernel is older than a version.
func OlderThan(t testing.TB, major, minor int) bool {
	t.Helper()
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		t.Fatal(err)
	}
	var a, b int
	if _, err := fmt.Sscanf(string(release), "%d.%d", &a, &b); err != nil {
		t.Fatalf("%q: %v", release, err)
	}
	return a < major || a == major && b < minor
}
