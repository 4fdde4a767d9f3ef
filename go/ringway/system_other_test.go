//go:build !linux || !(amd64 || arm64 || loong64 || riscv64)

package ringway_test

// What holds on systems without rings. GOARCH=386 runs these tests on Linux.

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"testing/iotest"

	"github.com/ringway-io/ringway/go/ringway"
)

func TestOtherSystems(t *testing.T) {
	dir := t.TempDir()
	const content = "0123456789"
	name := filepath.Join(dir, "file")
	f, err := ringway.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	batch := []ringway.Transfer{{P: []byte(content[5:]), Off: 5}, {P: []byte(content[:5]), Off: 0}}
	if err := f.WriteBatch(batch, ringway.FullSync); err != nil || batch[1].N != 5 {
		t.Fatal(err, batch)
	}
	if err := iotest.TestReader(f, []byte(content)); err != nil {
		t.Fatal(err)
	}
	b, err := f.ReadBuf(t.Context(), 8, 4)
	if err != io.EOF || string(b.Bytes()) != "89" {
		t.Fatal(b, err)
	}
	b.Release()
	b, err = f.ReadBuf(t.Context(), 8, math.MaxInt)
	if err != io.EOF || string(b.Bytes()) != "89" {
		t.Fatal(b, err)
	}
	b.Release()
	reads := []ringway.Transfer{{P: make([]byte, 2), Off: 1}, {P: make([]byte, 2), Off: 9}}
	if err := f.ReadBatch(reads); err != nil || string(reads[0].P) != "12" || reads[1].N != 1 ||
		reads[1].Err != io.EOF {
		t.Fatal(err, reads)
	}
	p := make([]byte, 3)
	if n, err := f.ReadAtContext(t.Context(), p, 8); n != 2 || err != io.EOF ||
		string(p[:n]) != "89" {
		t.Error(n, err)
	}
	if n, err := f.WriteAtContext(t.Context(), []byte(content), 0); n != len(content) ||
		err != nil || f.SyncContext(t.Context()) != nil {
		t.Error(n, err)
	}
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	for _, err := range []error{
		func() error { _, err := f.ReadAtContext(ended, make([]byte, 1), 0); return err }(),
		func() error { _, err := f.WriteAtContext(ended, make([]byte, 1), 0); return err }(),
		func() error { _, err := f.ReadBuf(ended, 0, 1); return err }(),
		f.SyncContext(ended),
	} {
		var path *fs.PathError
		if !errors.As(err, &path) || path.Err.Error() != "enough" {
			t.Error(err)
		}
	}
	if err := f.Preallocate(0, 10); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	log, err := ringway.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	records := []ringway.Transfer{{P: []byte("abc"), Off: 7}, {P: nil}, {P: []byte("d")}}
	if err := log.WriteBatchContext(t.Context(), records, ringway.DataSync); err != nil ||
		records[0].N != 3 || records[2].N != 1 {
		t.Error(err, records)
	}
	if got, err := os.ReadFile(name); err != nil || string(got) != content+"abcd" {
		t.Error(string(got), err)
	}
	if err := log.Close(); err != nil {
		t.Error(err)
	}
	if err := log.WriteBatch(records, ringway.NoSync); !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
	if err := fstest.TestFS(ringway.DirFS(dir), "file"); err != nil {
		t.Error(err)
	}
}

func TestOtherSystemsBackends(t *testing.T) {
	e, err := ringway.New(ringway.Options{})
	if err != nil || e.Backend() != ringway.BackendThreads ||
		!strings.Contains(e.Explain(), "io_uring refused") {
		t.Fatal(e, err)
	}
	for _, backend := range []ringway.Backend{ringway.BackendURing, ringway.BackendKAIO} {
		_, err := ringway.New(ringway.Options{Backend: backend})
		var refused *ringway.Refusal
		if !errors.As(err, &refused) {
			t.Error(backend, err)
		}
	}
}
