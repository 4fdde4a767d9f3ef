//go:build race

package net

// Whether the race detector looks on: yes.

const RaceEnabled = true
