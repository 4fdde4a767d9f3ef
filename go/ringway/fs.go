// DirFS: a directory as an fs.FS.

package ringway

import (
	"io/fs"
	"os"
	"path/filepath"
)

// FS is a directory as a file system, as [os.DirFS] makes one. An engine reads its files. Symbolic
// links may lead out of the directory.
type FS struct {
	engine *Engine // nil: the default engine.
	dir    string
}

var (
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadFileFS = (*FS)(nil)
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.SubFS      = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// DirFS returns a directory as a file system, on the default engine.
func DirFS(dir string) *FS { return &FS{dir: dir} }

// DirFS returns a directory as a file system.
func (e *Engine) DirFS(dir string) *FS { return &FS{e, dir} }

// resolve returns the path below the directory that a name stands for.
func (f *FS) resolve(op, name string) (string, error) {
	if !fs.ValidPath(name) || f.dir == "" {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	local, err := filepath.Localize(name)
	if err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	// Not cleaned: like os.DirFS, this keeps "." as the name of the directory itself.
	return f.dir + "/" + local, nil
}

// withName replaces the path in an error by the name that the caller used.
func withName(err error, name string) error {
	if e, ok := err.(*fs.PathError); ok {
		e.Path = name
	}
	return err
}

// Open opens a file or a directory. The result is a *[File].
func (f *FS) Open(name string) (fs.File, error) {
	file, err := f.open("open", name)
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *FS) open(op, name string) (*File, error) {
	path, err := f.resolve(op, name)
	if err != nil {
		return nil, err
	}
	open := Open
	if f.engine != nil {
		open = f.engine.Open
	}
	file, err := open(path)
	return file, withName(err, name)
}

// Stat describes a file, as [os.Stat] does.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	path, err := f.resolve("stat", name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	return info, withName(err, name)
}

// Lstat describes a file without following a symbolic link, as [os.Lstat] does.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	path, err := f.resolve("lstat", name)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(path)
	return info, withName(err, name)
}

// ReadLink returns the target of a symbolic link, which may lead anywhere.
func (f *FS) ReadLink(name string) (string, error) {
	path, err := f.resolve("readlink", name)
	if err != nil {
		return "", err
	}
	target, err := os.Readlink(path)
	return target, withName(err, name)
}

// ReadDir lists a directory, sorted by name.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	path, err := f.resolve("readdir", name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	return entries, withName(err, name)
}

// ReadFile reads a whole file.
func (f *FS) ReadFile(name string) ([]byte, error) {
	file, err := f.open("readfile", name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := file.readWhole()
	return content, withName(err, name)
}

// Sub returns the file system of a directory below.
func (f *FS) Sub(dir string) (fs.FS, error) {
	if dir == "." {
		return f, nil
	}
	path, err := f.resolve("sub", dir)
	if err != nil {
		return nil, err
	}
	return &FS{f.engine, path}, nil
}
