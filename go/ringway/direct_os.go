//go:build !linux || !(amd64 || arm64 || loong64 || riscv64)

package ringway

// The flag Direct on systems without rings.

import (
	"errors"
	"io/fs"
	"os"
)

// Direct is a flag of [OpenFile] that opens a file for direct I/O: transfers bypass the page cache.
// On Linux it is O_DIRECT. On macOS it stands for F_NOCACHE. Elsewhere transfers use the page
// cache. Direct writes must be aligned on every system; see [MisalignedError].
const Direct = 1 << 18 // None of the flags of package os, which never sees it.

// openFile is os.OpenFile, with Direct among the flags.
func openFile(name string, flag int, perm fs.FileMode) (*os.File, error) {
	file, err := os.OpenFile(name, flag&^Direct, perm)
	if err != nil || flag&Direct == 0 {
		return file, err
	}
	if err := bypassCache(file); err != nil {
		err = &fs.PathError{Op: "open", Path: name, Err: err}
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}
