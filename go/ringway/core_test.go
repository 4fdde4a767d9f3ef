//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// What the Rust core and engine have too: a table, and limits that were measured or found once.

package ringway

import (
	"testing"

	"github.com/ringway-io/ringway/go/internal/core"
)

func TestFileSystemTableIsThatOfTheCore(t *testing.T) {
	if core.File(t, "ringway-core/src/device/file_systems.txt") != fileSystemTable {
		t.Error("file_systems.txt differs from that in crates/ringway-core/src/device")
	}
}

// A constant that changes here or there changes in both, or its line goes, with the reason.
func TestConstantsAreThoseOfTheCore(t *testing.T) {
	for _, c := range []struct {
		value      int64
		file, name string
	}{
		{groupShare, "ringway/src/engine/pacing.rs", "BATCH_SHARE"},
		{largestGroup, "ringway/src/engine/pacing.rs", "MAX_BATCH"},
		{maxRounds, "ringway/src/engine/combiner.rs", "MAX_ROUNDS"},
		{maxMoved, "ringway/src/engine/combiner.rs", "MAX_OPERATIONS"},
		{int64(stuckAfter), "ringway/src/engine/pacing.rs", "STUCK_AFTER"},
		{largestLane, "ringway/src/engine/shard.rs", "MAX_STUCK"},
		{int64(deviceStuckAfter), "ringway/src/engine/devices.rs", "STUCK_AFTER"},
		{maxCachedRead, "ringway/src/fs/transfer.rs", "READ_STEP"},
		{maxMisses, "ringway-core/src/cache_hint.rs", "MAX_MISSES"},
		{maxPieces, "ringway-core/src/split.rs", "WINDOW"},
		{maxTransfer, "ringway-core/src/queue/in_flight.rs", "MAX_PIECE"},
		{maxRetries, "ringway-core/src/queue/events.rs", "MAX_RETRIES"},
		{maxFixed, "ringway-core/src/queue/fixed.rs", "MAX_BUFFER"},
		{extentsPerBlock, "ringway-core/src/extents.rs", "PER_BLOCK"},
		{int64(readExtentsFor), "ringway-core/src/extents.rs", "AT_MOST"},
		{accessLately, "ringway-core/src/submit_waits.rs", "WATCHED_FOR"},
		{accessNever, "ringway-core/src/submit_waits.rs", "NEVER_CHANGED"},
	} {
		if there := core.Constant(t, c.file, c.name); c.value != there {
			t.Errorf("%d here, but %s is %d in crates/%s", c.value, c.name, there, c.file)
		}
	}
}
