// The flag Direct where the system has one of its own.

package ringway

import "syscall"

// Direct is a flag of [OpenFile] that opens a file for direct I/O: transfers bypass the page cache.
// On Linux it is O_DIRECT, and on macOS it stands for F_NOCACHE. Elsewhere, and on Linux without
// rings (32-bit machines and s390x, for example), transfers use the page cache. Direct writes must
// be aligned on every system; see [MisalignedError].
const Direct = syscall.O_DIRECT
