//go:build linux

// Command ringway-go measures the Go door: `ringway-go bench FILE` beside package os, and `ringway-go explain`.
package main

import (
	"fmt"
	"os"

	ringway "github.com/ringway-io/ringway/go"
)

const usage = `usage:
  ringway-go bench [options] FILE   what reads cost, with goroutines by the thousand, beside os.File
  ringway-go explain                which backend this machine has, and why not another
`

func main() {
	if len(os.Args) < 2 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	switch os.Args[1] {
	case "bench":
		if err := bench(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, "ringway-go bench:", err)
			os.Exit(1)
		}
	case "explain":
		fmt.Println(ringway.Explain())
	default:
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
}
