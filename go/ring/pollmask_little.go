//go:build linux && !s390x && !ppc64

package ring

// The order of the halves of a poll mask.

func pollMask(events uint32) uint32 { return events }
