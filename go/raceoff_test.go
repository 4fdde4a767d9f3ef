//go:build !race

package ringway_test

// Whether the race detector looks on: no.

const raceEnabled = false
