//go:build !race

// Package race reports whether the race detector is enabled. It does not see memory outside the Go
// heap, limits the number of goroutines, and makes sync.Pool drop objects at random.
package race

// Enabled reports whether the race detector is enabled.
const Enabled = false
