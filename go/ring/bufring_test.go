//go:build linux

// Buffer rings.

package ring

import (
	"bytes"
	"syscall"
	"testing"
)

func TestBufferRing(t *testing.T) {
	r := newRing(t, Options{})
	group, err := r.RegisterBufferRing(7, 4, 16)
	if err != nil {
		skip(t, err)
	}
	reading, writing := socketpair(t, syscall.SOCK_STREAM)
	multi := new(Request).RecvMultishot(reading, 7, 0)
	push(t, r, multi)
	// More messages than buffers: each buffer is returned.
	for i := range 20 {
		message := []byte{byte(i), 'a', 'b'}
		_, _ = syscall.Write(writing, message)
		c := collect(t, r, multi)[0]
		got, id, ok := group.Buffer(c)
		require(t, ok && bytes.Equal(got, message) && c.More(), "%d: %q %v %+v", i, got, ok, c)
		group.Return(id)
	}
	// Without returned buffers, the group becomes empty. The request ends with the next message, or
	// at once: kernels differ in whether they select a buffer before they look for data.
	for range 5 {
		_, _ = syscall.Write(writing, []byte("x"))
		if c := collect(t, r, multi)[0]; !c.More() {
			equal(t, c.Err(), error(syscall.ENOBUFS))
			break
		}
	}
	require(t, !multi.InFlight(), "four buffers held five messages")
	for id := range uint16(4) {
		group.Return(id)
	}
	var rest [16]byte
	_, _, _ = syscall.Recvfrom(reading, rest[:], syscall.MSG_DONTWAIT)
	_, _ = syscall.Write(writing, []byte("x"))
	c := run(t, r, new(Request).RecvSelect(reading, 7, 0))[0]
	if got, _, ok := group.Buffer(c); !ok || string(got) != "x" {
		t.Fatal(got, ok)
	}
	f := tempFile(t, "0123456789")
	c = run(t, r, new(Request).ReadSelect(int(f.Fd()), 7, 4, 2))[0]
	if got, _, ok := group.Buffer(c); !ok || string(got) != "2345" {
		t.Fatal(got, ok)
	}
	must(t, group.Close())
	if err := failure(t, r, new(Request).RecvSelect(reading, 7,
		syscall.MSG_DONTWAIT)); err == nil {
		t.Fatal("a receive used a closed group")
	}
}

func TestReadMultishot(t *testing.T) {
	r := newRing(t, Options{})
	needOps(t, r, OpReadMultishot)
	group, err := r.RegisterBufferRing(1, 4, 8)
	checkMemlock(t, err)
	reading, writing := pipe(t)
	multi := new(Request).ReadMultishot(reading, 1)
	push(t, r, multi)
	for i := range 10 {
		_, _ = syscall.Write(writing, []byte{byte(i), 'x'})
		c := collect(t, r, multi)[0]
		got, id, ok := group.Buffer(c)
		require(t, ok && c.More() && bytes.Equal(got, []byte{byte(i), 'x'}), "%d: %q %v %+v", i,
			got, ok, c)
		group.Return(id)
	}
	if err := group.Close(); err == nil {
		t.Fatal("Close succeeded with a request in flight")
	}
	run(t, r, new(Request).Cancel(multi))
	for multi.InFlight() {
		collect(t, r, multi)
	}
	must(t, group.Close())
	equal(t, group.Close(), ErrClosed)
	if _, _, ok := group.Buffer(Completion{Flags: FlagBuffer}); ok {
		t.Fatal("a closed group has buffers")
	}
}

func TestInvalidBufferRings(t *testing.T) {
	r := newRing(t, Options{})
	for _, c := range [][2]int{{0, 8}, {3, 8}, {4, 0}, {4, -1}, {1 << 16, 8}, {1 << 15, 1 << 20}} {
		_, err := r.RegisterBufferRing(0, c[0], c[1])
		require(t, err != nil, "%v", c)
	}
}
