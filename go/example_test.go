//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	ringway "github.com/ringway-io/ringway/go"
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
