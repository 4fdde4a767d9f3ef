//go:build linux

// Reports of a disk that stalls.

package pebblevfs_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble"
	"github.com/cockroachdb/pebble/vfs"

	"github.com/ringway-io/ringway/go/internal/pebblefs/stall"
	"github.com/ringway-io/ringway/go/pebblevfs"
	"github.com/ringway-io/ringway/go/ringway"
)

// A write that the disk does not take is reported to the listener of the database, as with Pebble's
// default file system.
func TestStalledDiskIsReported(t *testing.T) {
	engine, err := ringway.New(ringway.Options{})
	must(t, err)
	reports := make(chan vfs.DiskSlowInfo, 100)
	listener := pebble.EventListener{DiskSlow: func(info vfs.DiskSlowInfo) { reports <- info }}
	fs := pebblevfs.New(engine, pebblevfs.DiskSlow(100*time.Millisecond, listener.DiskSlow))
	name := filepath.Join(t.TempDir(), "file")
	must(t, syscall.Mkfifo(name+".old", 0o600))
	f, err := fs.ReuseForWrite(name+".old", name)
	must(t, err)
	info := stall.Write(t, name, f, reports)
	if info.Path != name || info.OpType != vfs.OpTypeWrite || info.Duration < 100*time.Millisecond {
		t.Error(info)
	}
	must(t, engine.Close())
}
