//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/ringway"
)

func Example() {
	dir, err := os.MkdirTemp("", "ringway")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	f, err := ringway.Create(filepath.Join(dir, "file"))
	if err != nil {
		panic(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("hello, world"), 0); err != nil {
		panic(err)
	}
	p := make([]byte, 5)
	if _, err := f.ReadAt(p, 7); err != nil {
		panic(err)
	}
	fmt.Println(string(p))
	// Output: world
}

func ExampleFile_ReadBatch() {
	f, err := ringway.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	batch := []ringway.Transfer{
		{P: make([]byte, 3), Off: 1},
		{P: make([]byte, 1), Off: 0},
	}
	if err := f.ReadBatch(batch); err != nil {
		panic(err)
	}
	fmt.Printf("%q %q\n", batch[1].P, batch[0].P)
	// Output: "\x7f" "ELF"
}

func ExampleFile_ReadBuf() {
	f, err := ringway.Open("/proc/self/exe")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	// When the time is over this returns at once: the buffer is ringway's until the kernel has let go of it.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	buffer, err := f.ReadBuf(ctx, 1, 3)
	if err != nil {
		panic(err)
	}
	defer buffer.Release()
	fmt.Println(string(buffer.Bytes()))
	// Output: ELF
}

// scratch makes a file for an example.
func scratch(content string) (name string, remove func()) {
	dir, err := os.MkdirTemp("", "ringway")
	if err != nil {
		panic(err)
	}
	name = filepath.Join(dir, "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		panic(err)
	}
	return name, func() { os.RemoveAll(dir) }
}

// A program that wants one backend, or none, asks for an engine of its own.
func ExampleNew() {
	engine, err := ringway.New(ringway.Options{Backend: ringway.BackendThreads})
	if err != nil {
		panic(err) // A *Refusal: the errno, what it means here, and the mend.
	}
	defer engine.Close()
	name, remove := scratch("content")
	defer remove()
	f, err := engine.Open(name)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	content, err := io.ReadAll(f)
	if err != nil {
		panic(err)
	}
	fmt.Println(engine.Backend(), string(content))
	// Output: threads content
}

// Direct I/O: neither the offset nor the length of a read has to be a multiple of anything. A buffer of ringway's is
// filled without a copy where they are.
func ExampleOpenFile() {
	name, remove := scratch(strings.Repeat("0123456789", 1000))
	defer remove()
	f, err := ringway.OpenFile(name, os.O_RDONLY|syscall.O_DIRECT, 0)
	if errors.Is(err, syscall.EINVAL) {
		f, err = ringway.Open(name) // This file system has no direct I/O.
	}
	if err != nil {
		panic(err)
	}
	defer f.Close()
	buffer := ringway.NewBuffer(4096)
	defer buffer.Release()
	if _, err := f.ReadAt(buffer.Bytes(), 4096); err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", buffer.Bytes()[:5])
	odd := make([]byte, 5)
	if _, err := f.ReadAt(odd, 1234); err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", odd)
	// Output:
	// 67890
	// 45678
}

// A group commit: several records in one submission, and the sync behind them.
func ExampleFile_WriteBatch() {
	name, remove := scratch("")
	defer remove()
	f, err := ringway.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	var batch []ringway.Transfer
	end := int64(0)
	for _, record := range []string{"one\n", "two\n", "three\n"} {
		batch = append(batch, ringway.Transfer{P: []byte(record), Off: end})
		end += int64(len(record))
	}
	if err := f.WriteBatch(batch, ringway.DataSync); err != nil {
		panic(err)
	}
	// All three are on the disk now.
	content, err := os.ReadFile(name)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s", content)
	// Output:
	// one
	// two
	// three
}

// When the context ends the read is cancelled in the kernel; p is the caller's again when this returns.
func ExampleFile_ReadAtContext() {
	name, remove := scratch("content")
	defer remove()
	f, err := ringway.Open(name)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("nobody waits for it any more"))
	p := make([]byte, 7)
	_, err = f.ReadAtContext(ctx, p, 0)
	fmt.Println(errors.Is(err, context.Cause(ctx)))
	// Output: true
}

// An FS goes wherever an [fs.FS] goes: http.FS, template.ParseFS, archive/tar, fs.WalkDir.
func ExampleDirFS() {
	name, remove := scratch("content")
	defer remove()
	server := httptest.NewServer(http.FileServer(http.FS(ringway.DirFS(filepath.Dir(name)))))
	defer server.Close()
	answer, err := http.Get(server.URL + "/file")
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		panic(err)
	}
	fmt.Println(answer.Status, string(content))
	// Output: 200 OK content
}
