//go:build linux && (s390x || ppc64 || mips || mips64)

// The order of the halves of a poll mask.

package ring

import "math/bits"

// pollMask swaps the halves of the field, as the kernel expects on big-endian machines.
func pollMask(events uint32) uint32 { return bits.RotateLeft32(events, 16) }
