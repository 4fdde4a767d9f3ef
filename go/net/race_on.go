//go:build race

package net

import (
	"runtime"
	"unsafe"
)

// The race detector does not see the kernel. It is told here what the kernel reads and writes, and, as by the standard
// package, that whoever receives comes after those who have sent.

var kernel byte

func sending(p []byte) {
	if len(p) > 0 {
		runtime.RaceReadRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
	runtime.RaceReleaseMerge(unsafe.Pointer(&kernel))
}

func received(p []byte) {
	if len(p) > 0 {
		runtime.RaceWriteRange(unsafe.Pointer(unsafe.SliceData(p)), len(p))
	}
	runtime.RaceAcquire(unsafe.Pointer(&kernel))
}
