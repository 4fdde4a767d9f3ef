//go:build linux

// Command fileserver serves a directory by HTTP, through ringway's files. [http.FS] accepts any
// fs.FS, so ranges, conditional requests, listings and index.html work as with package os.
//
//	go run ./examples/fileserver -listen localhost:8080 /srv/data
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/ringway-io/ringway/go/ringway"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	switch err := run(ctx, os.Args[1:], os.Stderr); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "fileserver:", err)
		os.Exit(1)
	}
}

// run serves until the context ends, and then finishes the requests in progress.
func run(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fileserver", flag.ContinueOnError)
	flags.SetOutput(out)
	flags.Usage = func() {
		fmt.Fprint(out, "usage: fileserver [flags] [directory]\n\n"+
			"Serves a directory by HTTP. The default is the current one.\n\n")
		flags.PrintDefaults()
	}
	listen := flags.String("listen", "localhost:8080",
		"address to listen on; port 0 chooses a free port")
	backend := flags.String("backend", "",
		"uring, kaio or threads; empty chooses the best available one")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 1 {
		flags.Usage()
		return fmt.Errorf("expected one directory, got %d", flags.NArg())
	}
	dir := "."
	if flags.NArg() == 1 {
		dir = flags.Arg(0)
	}
	if info, err := os.Stat(dir); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s is not a directory", dir)
	}
	engine, err := ringway.New(ringway.Options{Backend: ringway.Backend(*backend)})
	if err != nil {
		return err
	}
	defer engine.Close()
	listener, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	logger := log.New(out, "", log.LstdFlags)
	server := &http.Server{
		Handler: http.FileServer(http.FS(engine.DirFS(dir))), ErrorLog: logger,
		ReadHeaderTimeout: 10 * time.Second,
	}
	logger.Println(engine.Explain())
	logger.Printf("serving %s on http://%s", dir, listener.Addr())
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	shutdown, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return server.Shutdown(shutdown)
}
