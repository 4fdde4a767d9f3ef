// Copies that the kernel does alone.

package ringway

import (
	"bytes"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// A buffered file goes to a connection without a copy through the program, a direct file with one.
// Both start at the current position and move it.
func TestSendfile(t *testing.T) {
	content := make([]byte, 1<<20+5)
	for i := range content {
		content[i] = byte(i >> 8)
	}
	name := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(name, content, 0o600))
	e, err := New(Options{})
	must(t, err)
	defer e.Close()
	for _, direct := range []int{0, Direct} {
		f, err := e.OpenFile(name, os.O_RDONLY|direct, 0)
		if err != nil {
			skip.Test(t, "no direct I/O here: ", err)
		}
		defer f.Close()
		if _, err := f.Seek(5, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		must(t, err)
		defer l.Close()
		received := make(chan []byte, 1)
		go func() {
			defer close(received)
			c, err := l.Accept()
			if err != nil {
				return
			}
			all, _ := io.ReadAll(c)
			received <- all
			c.Close()
		}()
		c, err := net.Dial("tcp", l.Addr().String())
		must(t, err)
		n, err := io.Copy(c, struct{ io.Reader }{io.LimitReader(f, 100)})
		if n != 100 || err != nil {
			t.Fatal(n, err)
		}
		hits := f.cache.hits.Load()
		if n, err := c.(io.ReaderFrom).ReadFrom(io.LimitReader(f, 1<<20-200)); n != 1<<20-200 ||
			err != nil {
			t.Fatal(n, err)
		}
		if direct == 0 && f.cache.hits.Load() != hits {
			t.Error("the program read the file")
		}
		// From the current position to the end.
		if n, err := io.Copy(c, f); n != 100 || err != nil {
			t.Fatal(n, err)
		}
		must(t, c.Close())
		if !bytes.Equal(<-received, content[5:]) {
			t.Fatal("wrong bytes")
		}
	}
}
