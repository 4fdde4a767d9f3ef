//go:build linux

package parquet_test

import (
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/suite"
	"github.com/ringway-io/ringway/go/ringway"
)

// skipped are tests that are about the reader that they give, which is not the one that is read from here.
var skipped = suite.Skips{
	"TestOpenFileOptimisticRead":                         "counts the reads of the reader that it gives",
	"TestOpenFileOptimisticReadWithPrefetchBloomFilters": "counts the reads of the reader that it gives",
}

// The library's own tests, in a copy of it where every Parquet file that is opened is read by way of ringway, whatever it was
// before: bytes in memory, mostly.
func TestLibrarysOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: -short")
	}
	m := suite.Copy(t, "github.com/parquet-go/parquet-go", map[string]string{"github.com/ringway-io/ringway/go": ".."})
	m.Hook("testdata/suite/hook.go")
	m.Insert("file.go", "func OpenFile(r io.ReaderAt, size int64,", "\tif Through != nil {\n\t\tr = Through(r, size)\n\t}\n")
	m.Add("through.go", []byte("package parquet\n\nimport \"io\"\n\nvar Through func(r io.ReaderAt, size int64) io.ReaderAt\n"))
	if suite.Long() {
		t.Run("os", func(t *testing.T) { skipped.Control(t, m.Test(t, ".", []string{"RINGWAY_SUITE_READ=os"})) })
	}
	for _, backend := range backends {
		for _, way := range []string{"direct", "buffered"} {
			if key := string(backend) + " " + way; !suite.Long() && key != "uring buffered" && key != "kaio direct" {
				continue
			}
			t.Run(string(backend)+"/"+way, func(t *testing.T) {
				engine, err := ringway.New(ringway.Options{Backend: backend})
				if err != nil {
					skip.Test(t, err)
				}
				engine.Close()
				begin := time.Now()
				// (TestColumnChunkAllocs has a limit that is exact for the allocations of a bytes.Reader: none.)
				r := m.Test(t, ".", []string{"RINGWAY_SUITE_READ=" + string(backend) + " " + way}, skipped.Flag("TestColumnChunkAllocs")...)
				t.Logf("%d passed in %v; %d files, %d reads, %d operations of the engine's", len(r.Passed),
					time.Since(begin).Round(time.Second), r.Counts[0], r.Counts[1], r.Counts[2])
				for _, name := range r.Failed {
					t.Errorf("%s:\n%.2000s", name, r.Output[name])
				}
				if r.Counts[0] == 0 || r.Counts[1] == 0 {
					t.Error("these tests do not read by way of ringway")
				}
				// (KAIO has no buffered reads.)
				if carried := backend == ringway.Uring || backend == ringway.KAIO && way == "direct"; carried != (r.Counts[2] > 0) {
					t.Error(r.Counts[2], "operations went through the engine's queues")
				}
			})
		}
	}
}
