//go:build race

package net

const RaceEnabled = true
