// Examples for the documentation: files, batches, contexts, direct I/O and engines.

package ringway_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/ringway"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	f, err := ringway.Create(filepath.Join(dir, "file"))
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("hello, world"), 0); err != nil {
		log.Fatal(err)
	}
	p := make([]byte, 5)
	if _, err := f.ReadAt(p, 7); err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(p))
	// Output: world
}

func ExampleFile_ReadBatch() {
	f, err := ringway.Open("/proc/self/exe")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	batch := []ringway.Transfer{
		{P: make([]byte, 3), Off: 1},
		{P: make([]byte, 1), Off: 0},
	}
	if err := f.ReadBatch(batch); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%q %q\n", batch[1].P, batch[0].P)
	// Output: "\x7f" "ELF"
}

func ExampleFile_ReadBuf() {
	f, err := ringway.Open("/proc/self/exe")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	// When the time is over, ReadBuf returns at once. The buffer goes back to the pool when the
	// kernel has completed the read.
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	buffer, err := f.ReadBuf(ctx, 1, 3)
	if err != nil {
		log.Fatal(err)
	}
	defer buffer.Release()
	fmt.Println(string(buffer.Bytes()))
	// Output: ELF
}

// A program that needs a certain backend makes an engine of its own.
func ExampleNew() {
	engine, err := ringway.New(ringway.Options{Backend: ringway.BackendThreads})
	if err != nil {
		log.Fatal(err) // A *Refusal: the errno, its meaning on this machine, and the fix.
	}
	defer engine.Close()
	f, err := engine.Open("/proc/self/exe")
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 3)
	if _, err := f.ReadAt(p, 1); err != nil {
		log.Fatal(err)
	}
	fmt.Println(engine.Backend(), string(p))
	// Output: threads ELF
}

// With direct I/O, neither the offset nor the length of a read has to be aligned. If they are, a
// pooled buffer is filled without a copy.
func ExampleOpenFile() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "file")
	if err := os.WriteFile(name, []byte(strings.Repeat("0123456789", 1000)), 0o600); err != nil {
		log.Fatal(err)
	}
	f, err := ringway.OpenFile(name, os.O_RDONLY|ringway.Direct, 0)
	if errors.Is(err, syscall.EINVAL) {
		f, err = ringway.Open(name) // This file system does not support direct I/O.
	}
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	buffer := ringway.NewBuffer(4096)
	defer buffer.Release()
	if _, err := f.ReadAt(buffer.Bytes(), 4096); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", buffer.Bytes()[:5])
	odd := make([]byte, 5)
	if _, err := f.ReadAt(odd, 1234); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s\n", odd)
	// Output:
	// 67890
	// 45678
}

// A refusal says what is not available, why, and what an operator can do about it.
func ExampleRefusal() {
	f, err := ringway.CreateTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	// An untorn write needs direct I/O, with which this file is not open.
	err = f.WriteUntornAt(make([]byte, 4096), 0)
	var refused *ringway.Refusal
	if errors.As(err, &refused) {
		fmt.Println(refused.Feature, refused.Errno == syscall.EOPNOTSUPP, refused.Meaning != "",
			refused.Fix != "")
	}
	fmt.Println(errors.Is(err, errors.ErrUnsupported))
	// Output:
	// RWF_ATOMIC true true true
	// true
}

// Why a better backend is not in use: each refusal with its reason and its fix.
func ExampleEngine_Refusals() {
	engine, err := ringway.Default()
	if err != nil {
		log.Fatal(err)
	}
	for _, refused := range engine.Refusals() {
		log.Printf("%s: %s; fix: %s", refused.Feature, refused.Meaning, refused.Fix)
	}
	// Output:
}

// A log of which many goroutines append records: each waits until its record is on the disk, and
// those that wait at the same time share a write and a sync.
func ExampleFile_WriteBatch_log() {
	f, err := ringway.CreateTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	type record struct {
		text string
		done chan error
	}
	records := make(chan record, 1000)
	ended := make(chan struct{})
	go func() { // The only goroutine that writes.
		defer close(ended)
		var failed error
		end := int64(0)
		for first := range records {
			group := []record{first}
			for len(records) > 0 && len(group) < cap(records) {
				group = append(group, <-records)
			}
			var batch []ringway.Transfer
			for _, one := range group {
				batch = append(batch, ringway.Transfer{P: []byte(one.text), Off: end})
				end += int64(len(one.text))
			}
			if failed == nil {
				// After an error the log has ended: nobody would find what is behind a gap.
				failed = f.WriteBatch(batch, ringway.DataSync)
			}
			for _, one := range group {
				one.done <- failed // The error of a sync reaches all for whom it was made.
			}
		}
	}()
	var writers sync.WaitGroup
	for i := range 100 {
		writers.Go(func() {
			done := make(chan error, 1)
			records <- record{fmt.Sprintf("record %02d\n", i), done}
			if err := <-done; err != nil {
				log.Fatal(err)
			}
		})
	}
	writers.Wait()
	close(records)
	<-ended
	content, err := os.ReadFile(f.Name())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Count(string(content), "record "), len(content))
	// Output: 100 1000
}

// A group commit: several records and a sync in one submission.
func ExampleFile_WriteBatch() {
	f, err := ringway.CreateTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var batch []ringway.Transfer
	end := int64(0)
	for _, record := range []string{"one\n", "two\n", "three\n"} {
		batch = append(batch, ringway.Transfer{P: []byte(record), Off: end})
		end += int64(len(record))
	}
	if err := f.WriteBatch(batch, ringway.DataSync); err != nil {
		log.Fatal(err)
	}
	// All three records are on the disk now.
	content, err := os.ReadFile(f.Name())
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", content)
	// Output:
	// one
	// two
	// three
}

// The read returns when the context ends, and p is the caller's again.
func ExampleFile_ReadAtContext() {
	f, err := ringway.CreateTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString("content"); err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("not needed any more"))
	p := make([]byte, 7)
	_, err = f.ReadAtContext(ctx, p, 0)
	fmt.Println(errors.Is(err, context.Cause(ctx)))
	// Output: true
}

// An FS can be used wherever an [fs.FS] can: http.FS, template.ParseFS, archive/tar, fs.WalkDir.
func ExampleDirFS() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o600); err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.FS(ringway.DirFS(dir))))
	defer server.Close()
	response, err := http.Get(server.URL + "/file")
	if err != nil {
		log.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(response.Status, string(content))
	// Output: 200 OK content
}

// A program that is about to read places of a mapped file brings them into the page cache first.
func ExampleFile_Warm() {
	index, err := ringway.CreateTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(index.Name())
	defer index.Close()
	if _, err := index.WriteString("content"); err != nil {
		log.Fatal(err)
	}
	warmed, err := index.Warm(context.Background(), []ringway.Range{{Off: 0, N: 100}})
	fmt.Println(warmed.Cached+warmed.Read, len(warmed.Failed), err)
	// Output: 7 0 <nil>
}
