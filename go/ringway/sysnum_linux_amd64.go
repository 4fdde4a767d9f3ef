// The numbers of system calls that package syscall lacks, in the table of amd64.

package ringway

// System call numbers that package syscall does not have.
const (
	sysPreadv2     = 327
	sysPwritev2    = 328
	sysMemfdCreate = 319
	sysStatx       = 332
)
