//go:build !race

package ringway_test

const raceEnabled = false
