//go:build linux && (arm64 || riscv64 || loong64)

// The numbers of system calls that package syscall lacks, in the generic table: those of arm64,
// loong64 and riscv64.

package ringway

// System call numbers that package syscall does not have.
const (
	sysPreadv2     = 286
	sysPwritev2    = 287
	sysMemfdCreate = 279
	sysStatx       = 291
)
