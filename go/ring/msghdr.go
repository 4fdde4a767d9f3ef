//go:build linux && !(386 || arm || mips || mipsle)

package ring

// The width of a length in a msghdr.

import "syscall"

func setIovlen(msg *syscall.Msghdr, n int) { msg.Iovlen = uint64(n) }
