//go:build linux && (mips || mipsle)

// The numbers of the system calls on 32-bit MIPS (the ABI o32), which begin at 4000.

package ring

const (
	sysSetup    = 4425
	sysEnter    = 4426
	sysRegister = 4427
)
