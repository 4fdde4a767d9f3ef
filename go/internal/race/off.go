//go:build !race

// Package race tells whether the race detector looks on. It knows Go's heap alone, takes few goroutines, and has pools forget
// at random, which allocates.
package race

// Enabled is whether it does.
const Enabled = false
