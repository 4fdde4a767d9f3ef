//go:build linux && (s390x || ppc64)

package ring

// The order of the halves of a poll mask.

import "math/bits"

// pollMask: the kernel has the halves of this field the other way round on big-endian machines.
func pollMask(events uint32) uint32 { return bits.RotateLeft32(events, 16) }
