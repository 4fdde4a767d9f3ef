//go:build linux

// Command ringway-go measures the Go door beside package os, and tells which backend this machine grants it.
//
//	ringway-go bench      what reads by the thousand cost, on a scratch file of its own, in about a minute
//	ringway-go explain    which backend this machine has, and why not another
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/ringway-io/ringway/go/ringway"
)

const usage = `Usage: ringway-go COMMAND [OPTION]...

Commands:
  bench [OPTION]... [FILE]   what reads cost, with goroutines by the thousand, beside os.File
  explain                    which backend this machine grants, and why not another
  help                       this text; 'ringway-go bench -h' tells the options of bench
`

// Exit codes, as most commands have them.
const (
	exitFailure = 1
	exitUsage   = 2
)

// A signal ends it as it ends any program: the scratch file has no name, and a run under way dies with its parent.
func main() { os.Exit(command(os.Args[1:], os.Stdout, os.Stderr)) }

// command is main without the process, for tests.
func command(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitUsage
	}
	var err error
	switch name, rest := args[0], args[1:]; name {
	case "bench":
		err = bench(rest, stdout, stderr)
	case runCommand:
		err = runHere(rest, stdout)
	case "explain":
		err = explain(rest, stdout)
	case "help", "-h", "-help", "--help":
		_, err = fmt.Fprint(stdout, usage)
	default:
		err = usageError{fmt.Errorf("no command is called %q", name)}
	}
	var wrong usageError
	switch {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.As(err, &wrong):
		fmt.Fprintf(stderr, "ringway-go: %v\nTry 'ringway-go help' or 'ringway-go bench -h'.\n", err)
		return exitUsage
	default:
		fmt.Fprintln(stderr, "ringway-go:", err)
		return exitFailure
	}
}

// usageError is a mistake on the command line.
type usageError struct{ error }

func explain(args []string, stdout io.Writer) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("explain takes no arguments, and was given %q", args[0])}
	}
	engine, err := ringway.New(ringway.Options{})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, engine.Explain())
	return errors.Join(err, engine.Close())
}
