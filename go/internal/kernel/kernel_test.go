//go:build linux

// Comparisons of kernel versions.

package kernel

import "testing"

func TestIsSince(t *testing.T) {
	for release, is := range map[string]bool{"7.0.0": true, "7.2.13+deb14-cloud-amd64": true,
		"6.18.44": true, "6.17.5": false, "5.10.0-46-cloud-amd64": false, "10.1": true,
		"6.18-rc1": true, "6.18": true, "unknown": false, "": false} {
		if isSince(release, 6, 18) != is {
			t.Error(release)
		}
	}
	if !AtLeast(4, 18) || AtLeast(1000, 0) {
		t.Error("the version of this kernel")
	}
}
