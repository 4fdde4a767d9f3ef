//go:build !linux

// Systems without fallocate(2) and sync_file_range(2).

package pebblefs

// rangeSync is empty.
//
//lint:ignore U1000 It is embedded for Linux.
type rangeSync struct{}

// Preallocate does nothing, as with vfs.Default.
func (f *File) Preallocate(offset, length int64) error { return nil }

// SyncTo is SyncData.
func (f *File) SyncTo(length int64) (fullSync bool, err error) {
	err = f.Datasync()
	return err == nil, err
}
