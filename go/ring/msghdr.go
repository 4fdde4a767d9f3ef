//go:build linux && (amd64 || arm64 || riscv64 || loong64 || ppc64 || ppc64le || s390x || mips64 || mips64le)

package ring

// The width of a length in a msghdr.

import "syscall"

func setIovlen(msg *syscall.Msghdr, n int) { msg.Iovlen = uint64(n) }
