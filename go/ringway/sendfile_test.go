//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Copies of files to connections without a copy through the program.

package ringway

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"syscall"
	"testing"

	"github.com/ringway-io/ringway/go/internal/skip"
)

// took records the reader that its ReadFrom receives.
type took struct {
	bytes.Buffer
	source io.Reader
}

func (w *took) ReadFrom(r io.Reader) (int64, error) {
	w.source = r
	return w.Buffer.ReadFrom(r)
}

// A writer with a ReadFrom method receives a reader with the descriptor of the file, so that
// package net can use sendfile(2).
func TestWriteToGivesTheDescriptor(t *testing.T) {
	content := bytesOf(300_000)
	name := fileWith(t, content)
	each(t, func(t *testing.T, e *Engine, direct int) {
		f := open(t, e, name, os.O_RDONLY|direct)
		if _, err := f.Seek(7, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		var w took
		n, err := io.Copy(&w, f)
		if n != int64(len(content)-7) || err != nil || !bytes.Equal(w.Bytes(), content[7:]) {
			t.Fatal(n, err)
		}
		conn, ok := w.source.(syscall.Conn)
		if !ok {
			t.Fatalf("%T has no descriptor", w.source)
		}
		// A user of a raw descriptor would not know the alignment of direct I/O.
		if _, err := conn.SyscallConn(); (err == nil) != (direct == 0) {
			t.Fatal(err)
		}
		if _, again := w.source.(io.WriterTo); again {
			t.Fatal("WriteTo would be called again")
		}
		if at, err := f.Seek(0, io.SeekCurrent); at != int64(len(content)) || err != nil {
			t.Fatal("the position is", at, err)
		}
	})
}

// A web server sends a file with sendfile(2), whatever copies it. The file's Read is called at most
// for the head, from which the server guesses the content type.
func TestSendfileOverHTTP(t *testing.T) {
	content := bytesOf(8 << 20)
	name := fileWith(t, content)
	// This engine counts each read by the program.
	e, err := New(Options{Backend: BackendURing, AlwaysRing: true})
	if err != nil {
		skip.Test(t, err)
	}
	defer e.Close()
	serve := map[string]func(http.ResponseWriter, *http.Request, *File) error{
		"copy": func(w http.ResponseWriter, _ *http.Request, f *File) error {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, err := io.Copy(w, f)
			return err
		},
		"limited": func(w http.ResponseWriter, _ *http.Request, f *File) error {
			w.Header().Set("Content-Length", fmt.Sprint(len(content)))
			_, err := io.CopyN(w, f, int64(len(content)))
			return err
		},
		"content": func(w http.ResponseWriter, r *http.Request, f *File) error {
			info, err := f.Stat()
			http.ServeContent(w, r, "file.bin", info.ModTime(), f)
			return err
		},
	}
	for way, send := range serve {
		t.Run(way, func(t *testing.T) {
			failed := make(chan error, 1)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
				r *http.Request) {
				f, err := e.Open(name)
				if err == nil {
					err = send(w, r, f)
					f.Close()
				}
				failed <- err
			}))
			defer server.Close()
			before := e.Stats().Pushed
			response, err := http.Get(server.URL)
			must(t, err)
			got, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil || !bytes.Equal(got, content) {
				t.Fatal(len(got), err)
			}
			must(t, <-failed)
			if n := e.Stats().Pushed - before; n > 2 {
				t.Errorf("the program read the file with %d operations", n)
			}
		})
	}
}
