//go:build linux && (amd64 || arm64 || loong64 || riscv64)

package ringway

import (
	"os"
	"path/filepath"
	"testing"
)

func TestZramBelow(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"sda/sda1", "zram1/zram1p1", "dm-0/slaves", "dm-1/slaves",
		"loop/slaves"} {
		must(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
	}
	for _, pair := range [][2]string{{"dm-0", "sda"}, {"dm-0", "zram1"}, {"dm-1", "sda"},
		{"dm-1", "dm-0"}, {"loop", "loop"}} {
		must(t, os.Symlink("../../"+pair[1], filepath.Join(root, pair[0], "slaves", pair[1])))
	}
	for name, want := range map[string]bool{"zram1": true, "zram1/zram1p1": true, "dm-0": true,
		"dm-1": true, "sda": false, "sda/sda1": false, "loop": false, "missing": false} {
		if got := isZram(filepath.Join(root, name), stackedDevices); got != want {
			t.Error(name, got)
		}
	}
}

// On zram memory is aligned to pages, whatever the kernel reports.
func TestWholePages(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, bytesOf(8192), os.O_RDWR|Direct)
	if got := f.directLimits().memory; got < pageSize && takesWholePages(f.fd) {
		t.Error("memory is aligned to", got)
	}
}
