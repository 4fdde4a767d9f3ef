//go:build !race

package ringway

// Without the race detector there is nobody to tell of what the kernel does.

// written tells the race detector that the kernel has written to p.
func written([]byte) {}

// looked tells the race detector that the kernel has read from p.
func looked([]byte) {}
