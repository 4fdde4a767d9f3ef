#!/usr/bin/env bash
# Expected: Go promises no alignment of a byte slice, so a direct read (O_DIRECT) into
# make([]byte, 4096) fails with EINVAL, or works by luck of the heap, as with malloc.
#
# Found (Go 1.26.8, golang.org/x/sys 0.30.0, Linux 6.18.44, ext4): neither; escape analysis decides.
# If the slice escapes to the heap, every read works, for powers of two from 512 bytes to 64 KiB. If
# it does not escape, it is on the stack and the same read fails. unix.Pread and File.ReadAt do not
# make a slice escape. So a program works until someone removes a line that kept the slice, or
# the compiler gets better at keeping slices on the stack, as that of Go 1.25 and 1.26 did.
#
# Why: heap objects of one size lie side by side from the start of a page of 8 KiB, so those of a
# power of two are aligned to their size (internal/runtime/gc/sizeclasses.go); a stack slot is
# aligned to 8 bytes or little more.
#
# Needs Go 1.26. Set TMPDIR to a directory on ext4 or XFS, on a device with sectors of 512 bytes.
set -euo pipefail
dir=$(mktemp -d)
trap 'chmod -R u+w "$dir"; rm -rf "$dir"' EXIT
cd "$dir"
export GOFLAGS=-mod=mod GOTOOLCHAIN=local
cat >go.mod <<'MODULE'
module direct
go 1.26
require golang.org/x/sys v0.30.0
MODULE
cat >main.go <<'MAIN'
package main

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

var kept []byte

//go:noinline
func onStack(file *os.File) error {
	to := make([]byte, 4096)
	_, err := unix.Pread(int(file.Fd()), to, 0)
	return err
}

//go:noinline
func onStackReadAt(file *os.File) error {
	to := make([]byte, 4096)
	_, err := file.ReadAt(to, 0)
	return err
}

//go:noinline
func onHeap(file *os.File, size int) error {
	to := make([]byte, size)
	kept = to
	_, err := unix.Pread(int(file.Fd()), to, 0)
	return err
}

func main() {
	file, err := os.OpenFile("file", os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		panic(err)
	}
	works, tried := 0, 0
	for size := 512; size <= 64<<10; size *= 2 {
		for range 100 {
			tried++
			if onHeap(file, size) == nil {
				works++
			}
		}
	}
	pread, readAt := onStack(file), onStackReadAt(file)
	fmt.Printf("  kept, 512 bytes to 64 KiB: %d of %d reads work\n", works, tried)
	fmt.Printf("  not kept, 4096 bytes: Pread: %v; ReadAt: %v\n", pread, readAt)
	runtime.KeepAlive(file)
	if works != tried || pread == nil || readAt == nil {
		os.Exit(1)
	}
}
MAIN
head -c 65536 /dev/urandom >file
go build -o direct .
echo "$(go env GOVERSION), Linux $(uname -r), direct reads into a slice that is:"
./direct || { echo "not as found" >&2; exit 1; }
