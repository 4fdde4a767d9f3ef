//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Finds devices whose driver takes memory in whole pages only and does not refuse other memory:
// zram (Linux 6.18) then transfers the memory around the buffer.

package ringway

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
)

// stackedDevices is how many devices on top of each other are looked through.
const stackedDevices = 8

// plainMajors has the majors of drivers that make disks. A driver keeps its major while there are
// devices of it.
var plainMajors sync.Map

// takesWholePages reports whether a file's device is zram or stacked on it (dm, md). If that cannot
// be read, it is taken to be so, except where there is no sysfs.
func takesWholePages(fd int) bool {
	major, minor, ok := blockDevice(fd)
	if !ok || major == 0 {
		return false
	}
	if _, plain := plainMajors.Load(major); plain {
		return false
	}
	devices, _ := os.ReadFile("/proc/devices")
	switch driverOf(major, string(devices)) {
	case "zram":
		return true
	case "device-mapper", "md", "mdp", "blkext", "":
		zram, err := isZram(fmt.Sprintf("/sys/dev/block/%d:%d", major, minor), stackedDevices)
		return zram || err != nil && !errors.Is(err, fs.ErrNotExist)
	}
	plainMajors.Store(major, true)
	return false
}

// driverOf returns the name of a driver of block devices; it is empty if there is none. devices is
// the text of /proc/devices: the character devices, then the block devices.
func driverOf(major uint64, devices string) string {
	_, block, _ := strings.Cut(devices, "Block devices:")
	for line := range strings.Lines(block) {
		number, name, _ := strings.Cut(strings.TrimSpace(line), " ")
		if number == fmt.Sprint(major) {
			return name
		}
	}
	return ""
}

// isZram reports whether a device of sysfs, a link, is zram or stacked on it. More than depth
// devices on top of each other may be.
func isZram(device string, depth int) (bool, error) {
	target, err := os.Readlink(device)
	if err != nil || depth == 0 {
		return depth == 0, err
	}
	for part := range strings.SplitSeq(target, "/") {
		if strings.HasPrefix(part, "zram") {
			return true, nil
		}
	}
	// What is below a partition is below its disk. (Join would take ".." for the link's folder.)
	for _, folder := range []string{device + "/slaves", device + "/../slaves"} {
		below, err := os.ReadDir(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		for _, other := range below {
			zram, err := isZram(folder+"/"+other.Name(), depth-1)
			if zram || err != nil {
				return zram, err
			}
		}
	}
	return false, nil
}
