package ringway

import (
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// FS is a directory as a file system, whose files are read by an engine. As with [os.DirFS], symbolic links may lead out of
// it.
type FS struct {
	engine *Engine // nil: the default one.
	dir    string
}

var (
	_ fs.StatFS     = (*FS)(nil)
	_ fs.ReadFileFS = (*FS)(nil)
	_ fs.ReadDirFS  = (*FS)(nil)
	_ fs.SubFS      = (*FS)(nil)
	_ fs.ReadLinkFS = (*FS)(nil)
)

// DirFS is a directory, on the default engine.
func DirFS(dir string) *FS { return &FS{dir: dir} }

// DirFS is a directory.
func (e *Engine) DirFS(dir string) *FS { return &FS{e, dir} }

// at is where a name leads to.
func (f *FS) at(op, name string) (string, error) {
	if !fs.ValidPath(name) || f.dir == "" {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	local, err := filepath.Localize(name)
	if err != nil {
		return "", &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return f.dir + "/" + local, nil // As it is: "." then has the name that it was asked for by, as with os.DirFS.
}

// named has an error tell the name that was asked for, not where it leads to.
func named(err error, name string) error {
	if e, ok := err.(*fs.PathError); ok {
		e.Path = name
	}
	return err
}

// Open opens a file or a directory; the answer is a *[File].
func (f *FS) Open(name string) (fs.File, error) {
	file, err := f.open("open", name)
	if err != nil {
		return nil, err
	}
	return file, nil
}

func (f *FS) open(op, name string) (*File, error) {
	at, err := f.at(op, name)
	if err != nil {
		return nil, err
	}
	open := Open
	if f.engine != nil {
		open = f.engine.Open
	}
	file, err := open(at)
	return file, named(err, name)
}

// Stat tells of a file.
func (f *FS) Stat(name string) (fs.FileInfo, error) {
	at, err := f.at("stat", name)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(at)
	return info, named(err, name)
}

// Lstat tells of a file, and of a symbolic link itself.
func (f *FS) Lstat(name string) (fs.FileInfo, error) {
	at, err := f.at("lstat", name)
	if err != nil {
		return nil, err
	}
	info, err := os.Lstat(at)
	return info, named(err, name)
}

// ReadLink tells what a symbolic link holds, which may lead anywhere.
func (f *FS) ReadLink(name string) (string, error) {
	at, err := f.at("readlink", name)
	if err != nil {
		return "", err
	}
	target, err := os.Readlink(at)
	return target, named(err, name)
}

// ReadDir lists a directory, sorted by name.
func (f *FS) ReadDir(name string) ([]fs.DirEntry, error) {
	at, err := f.at("readdir", name)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(at)
	return entries, named(err, name)
}

// ReadFile reads a whole file.
func (f *FS) ReadFile(name string) ([]byte, error) {
	file, err := f.open("readfile", name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	content, err := file.readWhole()
	return content, named(err, name)
}

// Sub is a directory below.
func (f *FS) Sub(dir string) (fs.FS, error) {
	if dir == "." {
		return f, nil
	}
	at, err := f.at("sub", dir)
	if err != nil {
		return nil, err
	}
	return &FS{f.engine, at}, nil
}

// readWhole reads to the end, which may lie elsewhere than the size tells: files below /proc have none.
func (f *File) readWhole() ([]byte, error) {
	const least = 512
	size := least
	if info, err := f.Stat(); err == nil {
		size = int(min(max(info.Size()+1, least), maxTransfer))
	}
	content := make([]byte, 0, size)
	for {
		n, err := f.Read(content[len(content):cap(content)])
		content = content[:len(content)+n]
		if err == io.EOF {
			return content, nil
		}
		if err != nil {
			return content, err
		}
		if len(content) == cap(content) {
			content = append(content, 0)[:len(content)]
		}
	}
}
