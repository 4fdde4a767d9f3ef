//go:build linux && !(mips || mipsle || mips64 || mips64le)

// The numbers of the system calls, the same on every architecture but MIPS.

package ring

const (
	sysSetup    = 425
	sysEnter    = 426
	sysRegister = 427
)
