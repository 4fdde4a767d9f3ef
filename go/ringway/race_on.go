//go:build race

// Annotations for the race detector, which does not see the memory accesses of the kernel. With
// them it finds programs in which operations share a buffer.

package ringway

import (
	"runtime"
	"unsafe"
)

// kernelWrote tells the race detector that the kernel has written to p.
//
//lint:ignore U1000 Systems without rings do not use it.
func kernelWrote(p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
}

// kernelReads tells the race detector that the kernel reads p.
func kernelReads(p []byte) {
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
}
