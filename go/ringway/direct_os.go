//go:build !linux || !(amd64 || arm64 || loong64 || riscv64)

// Opening files with the flag Direct on systems without rings.

package ringway

import (
	"errors"
	"io/fs"
	"os"
)

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
