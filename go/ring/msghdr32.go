//go:build linux && (386 || arm || mips || mipsle)

// The width of a length in a msghdr.

package ring

import "syscall"

func setIovlen(msg *syscall.Msghdr, n int) { msg.Iovlen = uint32(n) }
