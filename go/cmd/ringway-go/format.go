//go:build linux

// Figures as people read them: three significant digits, as in `ringway bench`.

package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// absent stands for a missing figure.
const absent = "–"

// grouped formats 1234567 as 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// digits formats three significant digits: 0.123, 1.23, 12.3, 1,234.
func digits(value float64) string {
	// The limits are where three digits round up to the next power of ten.
	switch size := math.Abs(value); {
	case math.IsNaN(value) || math.IsInf(value, 0):
		return absent
	case value == 0:
		return "0"
	case size < 0.0005:
		return "<0.001"
	case size < 0.9995:
		return fmt.Sprintf("%.3f", value)
	case size < 9.995:
		return fmt.Sprintf("%.2f", value)
	case size < 99.95:
		return fmt.Sprintf("%.1f", value)
	default:
		return grouped(int64(math.Round(value)))
	}
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
