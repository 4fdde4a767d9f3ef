//go:build race

package ringway_test

// Whether the race detector looks on: yes.

// raceEnabled: the race detector has pools forget at random, which allocates.
const raceEnabled = true
