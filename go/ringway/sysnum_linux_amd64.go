package ringway

// System call numbers that package syscall does not have.
const (
	sysPreadv2     = 327
	sysMemfdCreate = 319
	sysStatx       = 332
)
