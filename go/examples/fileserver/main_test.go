//go:build linux

// Compares the server with one on package os, for many requests at once.

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/internal/tests"
	"github.com/ringway-io/ringway/go/ringway"
)

// site creates a directory to serve.
func site(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{
		"index.html":            []byte("<p>hello"),
		"large.bin":             bytes.Repeat([]byte("0123456789"), 50_000),
		"sub/page.html":         []byte("<!doctype html>"),
		"sub/with space & more": []byte("text"),
		"unknown":               []byte("\x00\x01\x02"),
	} {
		name = filepath.Join(dir, name)
		tests.Must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		tests.Must(t, os.WriteFile(name, content, 0o600))
	}
	tests.Must(t, os.Symlink("large.bin", filepath.Join(dir, "link")))
	return dir
}

// start runs the command until the test ends or calls stop.
func start(t *testing.T, args ...string) (url string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-listen", "localhost:0"}, args...), in)
		in.CloseWithError(io.EOF)
		ended <- err
	}()
	var output bytes.Buffer
	for url == "" {
		p := make([]byte, 1000)
		n, err := out.Read(p)
		output.Write(p[:n])
		if text := output.String(); strings.HasSuffix(text, "\n") {
			url = regexp.MustCompile(`http://\S+`).FindString(text)
		}
		if err != nil {
			t.Fatal(output.String(), <-ended)
		}
	}
	go func() { _, _ = io.Copy(io.Discard, out) }()
	stop = sync.OnceFunc(func() {
		cancel()
		tests.Must(t, <-ended)
	})
	t.Cleanup(stop)
	return url, stop
}

// transport keeps no connection, which the server would wait for when it ends.
var transport = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// response makes a request and returns the parts of its response to compare.
func response(method, url string, header http.Header) string {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return err.Error()
	}
	r.Header = maps.Clone(header)
	got, err := transport.RoundTrip(r) // Follows no redirection.
	if err != nil {
		return err.Error()
	}
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	got.Header.Del("Date")
	// The boundary between several ranges is random.
	kind := got.Header.Get("Content-Type")
	if _, boundary, several := strings.Cut(kind, "boundary="); several {
		body = bytes.ReplaceAll(body, []byte(boundary), []byte("boundary"))
		got.Header.Set("Content-Type", "multipart")
	}
	return fmt.Sprintf("%s %v %d %x %v", got.Status, got.Header, len(body), sha256.Sum256(body),
		err)
}

// Concurrent clients get the same responses as from a server on package os.
func TestSameResponsesAsPackageOS(t *testing.T) {
	dir := site(t)
	reference := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer reference.Close()
	long, soon := time.Unix(0, 0).UTC().Format(http.TimeFormat),
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat)
	for _, backend := range []ringway.Backend{ringway.BackendURing, ringway.BackendKAIO,
		ringway.BackendThreads} {
		t.Run(string(backend), func(t *testing.T) {
			if engine, err := ringway.New(ringway.Options{Backend: backend}); err != nil {
				skip.Test(t, err)
			} else {
				engine.Close()
			}
			url, stop := start(t, "-backend", string(backend), dir)
			defer stop()
			var wg sync.WaitGroup
			for _, path := range []string{
				"/", "/index.html", "/large.bin", "/link", "/sub", "/sub/", "/sub/page.html",
				"/sub/page.html/", "/sub/with%20space%20&%20more", "/unknown",
				"/none", "/../etc/passwd", "/%2e%2e/etc/passwd", "//large.bin", "/sub%2fpage.html",
			} {
				for _, header := range []http.Header{
					{}, {"Range": {"bytes=100000-400000"}}, {"Range": {"bytes=-3"}},
					{"Range": {"bytes=9999999-"}}, {"Range": {"bytes=0-1,5-6,100-5000"}},
					{"If-Modified-Since": {soon}}, {"If-Unmodified-Since": {long}},
				} {
					wg.Go(func() {
						for _, method := range []string{"GET", "HEAD", "POST"} {
							got := response(method, url+path, header)
							want := response(method, reference.URL+path, header)
							tests.Expect(t, got == want, "%s %s %v: %s; http.Dir: %s", method,
								path, header, got, want)
						}
					})
				}
			}
			wg.Wait()
		})
	}
}

func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	tests.Must(t, os.WriteFile(file, nil, 0o600))
	_, stop := start(t, t.TempDir())
	defer stop()
	for _, args := range [][]string{{"/none"}, {file}, {"a", "b"}, {"-backend=smoke", "."},
		{"-listen=nonsense", "."}, {"-what"}} {
		tests.Expect(t, run(t.Context(), args, io.Discard) != nil, "no error for %v", args)
	}
	var out bytes.Buffer
	err := run(t.Context(), []string{"-help"}, &out)
	tests.Expect(t, errors.Is(err, flag.ErrHelp) &&
		strings.Contains(out.String(), "usage: fileserver"), "%v: %s", err, &out)
}
