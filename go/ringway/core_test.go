//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// What the Rust core and engine have too: a table, and limits that were measured or found once.

package ringway

import (
	"testing"

	"github.com/ringway-io/ringway/go/internal/core"
)

func TestFileSystemTableIsThatOfTheCore(t *testing.T) {
	expect(t, core.File(t, "ringway-core/src/device/file_systems.txt") == fileSystemTable,
		"file_systems.txt differs from that in crates/ringway-core/src/device")
}

// A constant that changes here or there changes in both, or its line goes, with the reason.
func TestConstantsAreThoseOfTheCore(t *testing.T) {
	const rust, engine = "ringway-core/src", "ringway/src"
	for _, c := range []struct {
		value       int64
		place, name string
	}{
		{groupShare, engine, "BATCH_SHARE"},
		{largestGroup, engine, "MAX_BATCH"},
		{maxRounds, engine, "MAX_ROUNDS"},
		{maxMoved, engine, "MAX_OPERATIONS"},
		{int64(hungAfter), engine, "TRANSFERS_HUNG_AFTER"},
		{int64(deviceHungAfter), engine, "DEVICE_HUNG_AFTER"},
		{largestLane, engine, "MAX_HUNG_OPERATIONS"},
		{maxCachedRead, engine, "READ_STEP"},
		{maxMisses, rust, "MAX_MISSES"},
		{maxPieces, rust, "WINDOW"},
		{maxTransfer, rust, "MAX_PIECE"},
		{maxRetries, rust + "/queue", "MAX_RETRIES"},
		{maxFixed, rust, "MAX_BUFFER"},
		{extentsPerBlock, rust, "PER_BLOCK"},
		{int64(readExtentsFor), rust, "AT_MOST"},
		{accessLately, rust, "WATCHED_FOR"},
		{accessNever, rust, "NEVER_CHANGED"},
	} {
		if there := core.Constant(t, c.place, c.name); c.value != there {
			t.Errorf("%d here, but %s is %d in crates/%s", c.value, c.name, there, c.place)
		}
	}
}
