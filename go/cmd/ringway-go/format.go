//go:build linux

// Numbers and texts as people read them.

package main

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
)

// grouped formats 1234567 as 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// sizeText formats 4 KiB or 1.5 GiB.
func sizeText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}
	unit, scale := 0, int64(1)
	for unit+1 < len(units) && n/scale >= 1024 {
		scale *= 1024
		unit++
	}
	if n%scale == 0 {
		return fmt.Sprintf("%d %s", n/scale, units[unit])
	}
	return fmt.Sprintf("%.1f %s", float64(n)/float64(scale), units[unit])
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return grouped(int64(n)) + " " + noun + "s"
}

// printable replaces control characters, which could change the terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}
