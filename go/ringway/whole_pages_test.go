//go:build linux && (amd64 || arm64 || loong64 || riscv64)

// Devices whose driver takes memory in whole pages.

package ringway

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestZramBelow(t *testing.T) {
	root := t.TempDir()
	for _, folder := range []string{"sda/sda1", "zram1", "dm-0/slaves", "md0/slaves", "md0/md0p1",
		"dev"} {
		must(t, os.MkdirAll(filepath.Join(root, folder), 0o700))
	}
	link := func(to, at string) { must(t, os.Symlink(to, filepath.Join(root, at))) }
	link("../../sda", "dm-0/slaves/sda")
	link("../../zram1", "dm-0/slaves/zram1")
	link("../../dm-0", "md0/slaves/dm-0")
	for i, c := range []struct {
		device string
		want   bool
	}{{"sda", false}, {"sda/sda1", false}, {"zram1", true}, {"dm-0", true}, {"md0", true},
		{"md0/md0p1", true}} {
		at := fmt.Sprint("dev/", i)
		link("../"+c.device, at)
		got, err := isZram(filepath.Join(root, at), stackedDevices)
		expect(t, got == c.want && err == nil, "%v, %v, %v", c.device, got, err)
	}
	_, err := isZram(root+"/dev/missing", stackedDevices)
	wantError(t, "missing", err, fs.ErrNotExist)
}

func TestDriverOf(t *testing.T) {
	const devices = "Character devices:\n  9 st\n254 zram\n\nBlock devices:\n  9 md\n253 zram\n" +
		"254 virtblk\n"
	for major, want := range map[uint64]string{9: "md", 253: "zram", 254: "virtblk", 7: ""} {
		got := driverOf(major, devices)
		expect(t, got == want, "%v, %v", major, got)
	}
}

// On zram memory is aligned to pages, whatever the kernel reports.
func TestWholePages(t *testing.T) {
	e := newOrSkip(t, Options{})
	f := openIn(t, e, bytesOf(8192), os.O_RDWR|Direct)
	got := f.directLimits().memory
	expect(t, got >= pageSize || !takesWholePages(f.fd), "memory is aligned to %v", got)
}
