//go:build linux

package ring_test

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/ring"
)

// Eight reads go to the kernel with one system call. Their completions come in any order; the tag says which is whose.
func Example() {
	f, err := os.CreateTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	if _, err := f.WriteString("The quick brown fox jumps over the lazy dog."); err != nil {
		log.Fatal(err)
	}

	r, err := ring.New(ring.Options{Entries: 8})
	if err != nil {
		log.Fatal(err) // It says why io_uring was refused, and what to do about it.
	}
	defer r.Close()

	words := make([][]byte, 8)
	for i := range words {
		words[i] = make([]byte, 4)
		q := new(ring.Request).Read(int(f.Fd()), words[i], int64(4*i))
		q.UserData = i
		if err := r.Push(q); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := r.SubmitAndWait(len(words), -1); err != nil { // Submits, and waits for all of them.
		log.Fatal(err)
	}
	done := make([]ring.Completion, len(words))
	for _, c := range done[:r.Reap(done)] {
		if err := c.Err(); err != nil {
			log.Fatalf("read %d: %v", c.Request.UserData, err)
		}
	}
	for _, word := range words {
		fmt.Printf("%s|", word)
	}
	// Output: The |quic|k br|own |fox |jump|s ov|er t|
}

// A file that is written, synced and only then renamed, in one chain: if one of the three fails, what follows is not begun.
// (A failed fsync does not end a chain of the kernel's, so it is looked at.)
func ExampleRequest_Link() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	r, err := ring.New(ring.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()

	temporary, name := filepath.Join(dir, "name.new"), filepath.Join(dir, "name")
	f, err := os.Create(temporary)
	if err != nil {
		log.Fatal(err)
	}
	defer f.Close()
	fd := int(f.Fd())
	chain := []*ring.Request{
		new(ring.Request).Write(fd, []byte("content"), 0).Link(),
		new(ring.Request).Fsync(fd).Link(),
		new(ring.Request).Renameat(ring.AtFDCWD, temporary, ring.AtFDCWD, name, 0),
	}
	for _, q := range chain {
		if err := r.Push(q); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := r.SubmitAndWait(len(chain), -1); err != nil {
		log.Fatal(err)
	}
	var done [3]ring.Completion
	for _, c := range done[:r.Reap(done[:])] {
		fmt.Println(c.Result, c.Err())
	}
	content, err := os.ReadFile(name)
	fmt.Println(string(content), err)
	// Output:
	// 7 <nil>
	// 0 <nil>
	// 0 <nil>
	// content <nil>
}

// A time limit for one request.
func ExampleRequest_LinkTimeout() {
	var pipe [2]int
	if err := syscall.Pipe2(pipe[:], syscall.O_CLOEXEC); err != nil {
		log.Fatal(err)
	}
	defer syscall.Close(pipe[0])
	defer syscall.Close(pipe[1])
	r, err := ring.New(ring.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()

	read := new(ring.Request).Read(pipe[0], make([]byte, 1), ring.CurrentPosition).Link()
	limit := new(ring.Request).LinkTimeout(10 * time.Millisecond)
	for _, q := range []*ring.Request{read, limit} {
		if err := r.Push(q); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := r.SubmitAndWait(2, -1); err != nil {
		log.Fatal(err)
	}
	var done [2]ring.Completion
	for _, c := range done[:r.Reap(done[:])] {
		if c.Request == limit {
			fmt.Println("the time is up:", c.Err() == syscall.ETIME)
		} else {
			fmt.Println("the read has failed:", c.Err() != nil)
		}
	}
	// Unordered output:
	// the time is up: true
	// the read has failed: true
}
