//go:build linux

// Limits that the Rust core has too.

package ring

import (
	"testing"

	"github.com/ringway-io/ringway/go/internal/core"
)

// A constant that changes here or there changes in both, or its line goes, with the reason.
func TestConstantsAreThoseOfTheCore(t *testing.T) {
	const memory = "ringway-core/src/backend/uring/memory.rs"
	const exiting = "ringway-core/src/backend/uring/exiting.rs"
	for _, c := range []struct {
		value      int64
		file, name string
	}{
		{int64(memoryWait), memory, "LONGEST_WAIT"},
		{int64(memoryStep), memory, "WAIT_STEP"},
		{int64(memoryHopeless), memory, "WITHOUT_HOPE"},
		{int64(soon), exiting, "SOON"},
		{int64(workerExit), exiting, "EXITED"},
		{workerTries, exiting, "TRIES"},
		{maxSubmitters, exiting, "MAX_THREADS"},
	} {
		if there := core.Constant(t, c.file, c.name); c.value != there {
			t.Errorf("%d here, but %s is %d in crates/%s", c.value, c.name, there, c.file)
		}
	}
}
