//go:build linux && !(s390x || ppc64 || mips || mips64)

// The order of the halves of a poll mask.

package ring

func pollMask(events uint32) uint32 { return events }
