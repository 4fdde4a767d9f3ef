//go:build linux

// Runs the tests of parquet-go on ringway, with RINGWAY_LONG=1.

package parquet_test

import (
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/suite"
	"github.com/ringway-io/ringway/go/ringway"
)

// skipped are tests of the reader that they pass, which the hook replaces.
var skipped = suite.Skips{
	"TestOpenFileOptimisticRead":                         "counts reads of its own reader",
	"TestOpenFileOptimisticReadWithPrefetchBloomFilters": "counts reads of its own reader",
}

// The library's tests pass in a copy that reads every Parquet file through ringway. Most of the
// tests read from memory otherwise.
func TestParquetGoSuite(t *testing.T) {
	if !suite.Long() {
		t.Skip("skipped: RINGWAY_LONG=1 runs it; the library's tests compile for minutes")
	}
	m := suite.Copy(t, "github.com/parquet-go/parquet-go",
		map[string]string{"github.com/ringway-io/ringway/go": ".."})
	m.Hook("testdata/suite/hook.go")
	m.Insert("file.go", "func OpenFile(r io.ReaderAt, size int64,",
		"\tif Through != nil {\n\t\tr = Through(r, size)\n\t}\n")
	m.Add("through.go", []byte("package parquet\n\nimport \"io\"\n\n"+
		"var Through func(r io.ReaderAt, size int64) io.ReaderAt\n"))
	t.Run("os", func(t *testing.T) {
		skipped.Control(t, m.Test(t, ".", []string{"RINGWAY_SUITE_READ=os"}))
	})
	for _, backend := range backends {
		for _, way := range []string{"direct", "buffered"} {
			t.Run(string(backend)+"/"+way, func(t *testing.T) {
				engine, err := ringway.New(ringway.Options{Backend: backend})
				if err != nil {
					skip.Test(t, err)
				}
				engine.Close()
				begin := time.Now()
				// TestColumnChunkAllocs allows no allocation, as with a bytes.Reader.
				r := m.Test(t, ".", []string{"RINGWAY_SUITE_READ=" + string(backend) + " " + way},
					skipped.Flag("TestColumnChunkAllocs")...)
				t.Logf("%d passed in %v; %d files, %d reads, %d operations of the engine",
					len(r.Passed),
					time.Since(begin).Round(time.Second), r.Counts[0], r.Counts[1], r.Counts[2])
				for _, name := range r.Failed {
					t.Errorf("%s:\n%.2000s", name, r.Output[name])
				}
				expect(t, r.Counts[0] != 0 && r.Counts[1] != 0,
					"the tests did not read through ringway")
				// Linux AIO supports direct reads only.
				queued := backend == ringway.BackendURing ||
					backend == ringway.BackendKAIO && way == "direct"
				expect(t, queued == (r.Counts[2] > 0), "%d operations in the queues of the engine",
					r.Counts[2])
			})
		}
	}
}
