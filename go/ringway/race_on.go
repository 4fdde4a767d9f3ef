//go:build race

package ringway

import (
	"runtime"
	"unsafe"
)

// The race detector does not see the kernel. It is told here, so that it finds the programs that share a buffer between
// operations.

func written(p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
}

func looked(p []byte) {
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
}
