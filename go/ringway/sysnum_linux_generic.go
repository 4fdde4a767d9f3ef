//go:build linux && (arm64 || riscv64 || loong64)

package ringway

// System call numbers that package syscall does not have.
const (
	sysPreadv2     = 286
	sysMemfdCreate = 279
	sysStatx       = 291
)
