//go:build linux && (mips64 || mips64le)

// The numbers of the system calls on 64-bit MIPS (the ABI n64), which begin at 5000.

package ring

const (
	sysSetup    = 5425
	sysEnter    = 5426
	sysRegister = 5427
)
