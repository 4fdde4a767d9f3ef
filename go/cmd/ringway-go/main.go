//go:build linux

// Command ringway-go measures package ringway and os.File side by side, and shows which backend
// ringway uses on this machine.
//
//	ringway-go bench      measure reads and group commits on a scratch file
//	ringway-go explain    show the backend, and why others are not available
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ringway-io/ringway/go/ringway"
)

const usageText = `Usage: ringway-go COMMAND [OPTION]...

Commands:
  bench [OPTION]... [FILE]   measure ringway and os.File; -help lists the options
  explain                    show the backend, and why others are not available
  help                       show this text

The exit status is 1 if the command fails, 2 for a wrong command line.
`

// The command needs no signal handler: the scratch file has no name, and a run dies with its
// parent.
func main() { os.Exit(command(os.Args[1:], os.Stdout, os.Stderr)) }

// command runs a command line and returns the exit status.
func command(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usageText)
		return 2
	}
	var err error
	switch name, rest := args[0], args[1:]; name {
	case "bench":
		err = bench(rest, stdout, stderr)
	case runCommand:
		err = childMain(rest, stdout)
	case "explain":
		err = explain(rest, stdout)
	case "help", "-h", "-help", "--help":
		_, err = fmt.Fprint(stdout, usageText)
	default:
		err = usageError{fmt.Errorf("unknown command %q", name)}
	}
	var wrong usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "ringway-go: %v\nTry 'ringway-go help' or 'ringway-go bench -help'.\n",
			err)
		return 2
	default:
		fmt.Fprintln(stderr, "ringway-go:", err)
		return 1
	}
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func explain(args []string, stdout io.Writer) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("explain takes no arguments: %q", args[0])}
	}
	engine, err := ringway.New(ringway.Options{})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, engine.Explain())
	return errors.Join(err, engine.Close())
}
