//go:build linux

// Examples for the documentation: the steps of a program that has a ring of its own. They have no
// way to skip themselves: where io_uring is refused, TestMain runs none.

package ring_test

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/ring"
)

func TestMain(m *testing.M) {
	flag.Parse()
	r, err := ring.New(ring.Options{})
	if err == nil {
		if err := r.Close(); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		// The memory of rings that tests have closed comes back late, and may be too little until
		// then.
		const memlock, enough = 8, 1 << 20
		var limit syscall.Rlimit
		if syscall.Getrlimit(memlock, &limit) == nil && limit.Cur < enough && os.Geteuid() != 0 {
			err = errors.New("less than 1 MiB may be locked (ulimit -l)")
		}
	}
	switch {
	case err == nil:
	case os.Getenv("CI") == "" || errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.ENOSYS):
		fmt.Println("skipped: examples:", err)
		_ = flag.Set("test.skip", "^Example")
	}
	os.Exit(m.Run())
}

// Eight reads go to the kernel with one system call. Their completions come in any order; the tag
// says which is whose.
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
		log.Fatal(err) // It explains why io_uring is not available, and how to fix it.
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
	// Submits, and waits for all of them.
	if _, err := r.SubmitAndWait(len(words), -1); err != nil {
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

// A file that is written, synced and only then renamed, in one chain: if one of the three fails,
// what follows is not begun. (A failed fsync does not end a chain of the kernel's, so it is looked
// at.)
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

// A timeout for one request.
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
	timeout := new(ring.Request).LinkTimeout(10 * time.Millisecond)
	for _, q := range []*ring.Request{read, timeout} {
		if err := r.Push(q); err != nil {
			log.Fatal(err)
		}
	}
	if _, err := r.SubmitAndWait(2, -1); err != nil {
		log.Fatal(err)
	}
	var done [2]ring.Completion
	for _, c := range done[:r.Reap(done[:])] {
		if c.Request == timeout {
			fmt.Println("the timeout expired:", c.Err() == syscall.ETIME)
		} else {
			fmt.Println("the read failed:", c.Err() != nil)
		}
	}
	// Unordered output:
	// the timeout expired: true
	// the read failed: true
}

// An echo server: it always has an accept in flight, and one request per connection. For sockets,
// package net is usually the better choice: the Go poller costs less for small messages, and it
// supports sendfile and splice.
func Example_echo() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	file, err := listener.(*net.TCPListener).File()
	if err != nil {
		log.Fatal(err)
	}
	listener.Close()
	defer file.Close()

	const messages = 3
	go func() { // The client.
		conn, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			log.Fatal(err)
		}
		defer conn.Close()
		p := make([]byte, 16)
		for i := range messages {
			fmt.Fprintf(conn, "message %d", i)
			n, err := conn.Read(p)
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(string(p[:n]))
		}
	}()

	r, err := ring.New(ring.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close() // Cancels the accept.
	push := func(q *ring.Request) {
		if err := r.Push(q); err != nil {
			log.Fatal(err)
		}
	}
	type connection struct {
		fd     int
		buffer [4096]byte
	}
	push(new(ring.Request).Accept(int(file.Fd()), 0))
	for served := 0; served < 1; {
		if _, err := r.SubmitAndWait(1, -1); err != nil {
			log.Fatal(err)
		}
		var done [16]ring.Completion
		for _, c := range done[:r.Reap(done[:])] {
			if err := c.Err(); err != nil {
				log.Fatal(err)
			}
			n := int(c.Result)
			switch q := c.Request; q.Opcode() {
			case ring.OpAccept:
				conn := &connection{fd: n}
				receive := new(ring.Request).Recv(conn.fd, conn.buffer[:], 0)
				receive.UserData = conn
				push(receive)
				push(q.Accept(int(file.Fd()), 0))
			case ring.OpRecv:
				conn := q.UserData.(*connection)
				if n == 0 {
					push(q.Close(conn.fd))
				} else {
					push(q.Send(conn.fd, conn.buffer[:n], syscall.MSG_WAITALL))
				}
			case ring.OpSend:
				conn := q.UserData.(*connection)
				push(q.Recv(conn.fd, conn.buffer[:], 0))
			case ring.OpClose:
				served++
			}
		}
	}
	// Output:
	// message 0
	// message 1
	// message 2
}
