//go:build linux

// Package filter makes system calls fail in this process, as sandboxes do. For tests.
package filter

import (
	"runtime"
	"syscall"
	"unsafe"
)

// Refuse installs a seccomp filter: from now on, the system calls with these numbers fail with
// EPERM in all threads.
func Refuse(calls ...uint32) error { return FailWith(syscall.EPERM, calls...) }

// FailWith is Refuse with another error.
func FailWith(errno syscall.Errno, calls ...uint32) error {
	// No-new-privs, which allows it to an unprivileged user, is a property of the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	type instruction struct {
		code   uint16
		jt, jf uint8
		k      uint32
	}
	const load, jumpEqual, ret = 0x20, 0x15, 0x06
	const allow, fail = 0x7fff0000, 0x00050000
	refused := fail | uint32(errno)
	program := []instruction{{load, 0, 0, 0}} // The number of the call is at offset 0.
	for _, call := range calls {
		program = append(program, instruction{jumpEqual, 0, 1, call},
			instruction{ret, 0, 0, refused})
	}
	program = append(program, instruction{ret, 0, 0, allow})
	filter := struct {
		len  uint16
		_    [6]byte
		code *instruction
	}{len: uint16(len(program)), code: &program[0]}
	const noNewPrivs, setModeFilter, allThreads = 38, 1, 1
	if _, _, errno := syscall.Syscall6(syscall.SYS_PRCTL, noNewPrivs, 1, 0, 0, 0, 0); errno != 0 {
		return errno
	}
	// Package syscall lacks the number. amd64 has its own table of system calls; arm64, loong64 and
	// riscv64 share the generic one.
	sysSeccomp := uintptr(277)
	if runtime.GOARCH == "amd64" {
		sysSeccomp = 317
	}
	if _, _, errno := syscall.Syscall(sysSeccomp, setModeFilter, allThreads,
		uintptr(unsafe.Pointer(&filter))); errno != 0 {
		return errno
	}
	return nil
}
