//go:build !race

package net

// Whether the race detector looks on: no.

const RaceEnabled = false
