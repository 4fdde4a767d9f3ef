//go:build race

package ringway_test

// raceEnabled: the race detector has pools forget at random, which allocates.
const raceEnabled = true
