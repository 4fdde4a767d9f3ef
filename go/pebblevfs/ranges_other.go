//go:build !linux

package pebblevfs

// Systems without fallocate(2) and sync_file_range(2).

type rangeSync struct{}

// Preallocate does nothing, as with vfs.Default.
func (f *file) Preallocate(offset, length int64) error { return nil }

// SyncTo is SyncData.
func (f *file) SyncTo(length int64) (fullSync bool, err error) {
	err = f.Datasync()
	return err == nil, err
}
