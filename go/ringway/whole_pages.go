//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Finds devices whose driver takes memory in whole pages only and does not refuse other memory:
// zram (Linux 6.18) then transfers the memory around the buffer.

package ringway

import (
	"fmt"
	"path/filepath"
	"strings"
)

// stackedDevices is how many devices on top of each other are looked through.
const stackedDevices = 8

// takesWholePages reports whether a file's device is zram or stacked on it (dm, md).
func takesWholePages(fd int) bool {
	major, minor, ok := blockDevice(fd)
	return ok && major != 0 && isZram(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor),
		stackedDevices)
}

func isZram(device string, depth int) bool {
	folder, err := filepath.EvalSymlinks(device)
	if err != nil {
		return false
	}
	// (A partition is a folder of its disk.)
	for part := range strings.SplitSeq(folder, "/") {
		if strings.HasPrefix(part, "zram") {
			return true
		}
	}
	if depth == 0 {
		return false
	}
	below, _ := filepath.Glob(folder + "/slaves/*")
	for _, other := range below {
		if isZram(other, depth-1) {
			return true
		}
	}
	return false
}
