//go:build !race

// Without the race detector, the memory accesses of the kernel need no annotations.

package ringway

// kernelWrote tells the race detector that the kernel has written to p.
//
//lint:ignore U1000 Systems without rings do not use it.
func kernelWrote([]byte) {}

// kernelReads tells the race detector that the kernel reads p.
func kernelReads([]byte) {}
