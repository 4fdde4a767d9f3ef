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
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway-io/ringway/go/internal/skip"
	"github.com/ringway-io/ringway/go/ringway"
)

// must fails the test on an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// site creates a directory to serve.
func site(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	large := make([]byte, 500_003)
	for i := range large {
		large[i] = byte(rand.Uint32())
	}
	for name, content := range map[string][]byte{
		"index.html":            []byte("<p>hello"),
		"large.bin":             large,
		"sub/page.html":         []byte("<!doctype html>"),
		"sub/empty":             nil,
		"sub/with space & more": []byte("text"),
		"style.css":             []byte("p{}"),
		"image.png":             []byte("\x89PNG\r\n\x1a\n"),
		"own/index.html":        []byte("own"),
		"unknown":               []byte("\x00\x01\x02"),
	} {
		name = filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		must(t, os.WriteFile(name, content, 0o600))
	}
	for target, link := range map[string]string{"large.bin": "link", "nowhere": "dangling",
		"sub": "linked"} {
		must(t, os.Symlink(target, filepath.Join(dir, link)))
	}
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
		must(t, <-ended)
	})
	t.Cleanup(stop)
	return url, stop
}

// request makes a request and returns the parts of its response to compare.
func request(client *http.Client, method, url string, header http.Header) (string, error) {
	r, err := http.NewRequest(method, url, nil)
	if err != nil {
		return "", err
	}
	r.Header = maps.Clone(header)
	response, err := client.Do(r)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		return "", err
	}
	response.Header.Del("Date")
	// The boundary is random.
	if kind := response.Header.Get("Content-Type"); strings.HasPrefix(kind, "multipart/") {
		_, boundary, _ := strings.Cut(kind, "boundary=")
		body = bytes.ReplaceAll(body, []byte(boundary), []byte("boundary"))
		response.Header.Set("Content-Type", "multipart")
	}
	return fmt.Sprintf("%s %v %d %x", response.Status, response.Header, len(body),
		sha256.Sum256(body)), nil
}

// Concurrent clients get the same responses as from a server on package os. No descriptor and no
// goroutine is left.
func TestSameResponsesAsPackageOS(t *testing.T) {
	dir := site(t)
	reference := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer reference.Close()
	plain := httptest.NewServer(http.FileServer(http.FS(os.DirFS(dir))))
	defer plain.Close()
	for _, backend := range []ringway.Backend{ringway.BackendURing, ringway.BackendKAIO,
		ringway.BackendThreads} {
		t.Run(string(backend), func(t *testing.T) {
			if engine, err := ringway.New(ringway.Options{Backend: backend}); err != nil {
				skip.Test(t, err)
			} else {
				engine.Close()
			}
			transport := &http.Transport{DisableCompression: true}
			client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request,
				[]*http.Request) error {
				return http.ErrUseLastResponse
			}}
			// Descriptors that this opens stay open.
			for _, url := range []string{reference.URL, plain.URL} {
				if _, err := request(client, "GET", url, nil); err != nil {
					t.Fatal(err)
				}
			}
			transport.CloseIdleConnections()
			descriptors, goroutines := settled(t, 0, 0)

			url, stop := start(t, "-backend", string(backend), dir)
			inAnHour := time.Now().Add(time.Hour).UTC()
			var wg sync.WaitGroup
			limit := make(chan struct{}, 50)
			for _, path := range []string{
				"/", "/index.html", "/large.bin", "/link", "/dangling", "/linked", "/linked/",
				"/sub", "/sub/", "/sub/page.html", "/sub/page.html/",
				"/sub/empty", "/sub/with%20space%20&%20more", "/style.css", "/image.png", "/own/",
				"/own", "/unknown", "/none", "/none/",
				"/../etc/passwd", "/%2e%2e/etc/passwd", "/sub/../large.bin", "//large.bin",
				"/a%00b", "/sub%2fpage.html",
			} {
				for _, header := range []http.Header{
					{}, {"Range": {"bytes=0-"}}, {"Range": {"bytes=1-1"}},
					{"Range": {"bytes=100000-400000"}}, {"Range": {"bytes=-3"}},
					{"Range": {"bytes=5-3"}}, {"Range": {"bytes=9999999-"}},
					{"Range": {"bytes=0-1,5-6,100-5000"}},
					{"If-Modified-Since": {inAnHour.Format(http.TimeFormat)}},
					{"If-Modified-Since": {time.Unix(0, 0).UTC().Format(http.TimeFormat)}},
					{"If-Unmodified-Since": {time.Unix(0, 0).UTC().Format(http.TimeFormat)}},
					{"If-Range": {time.Unix(0, 0).UTC().Format(http.TimeFormat)},
						"Range": {"bytes=0-10"}},
				} {
					for _, method := range []string{"GET", "HEAD", "POST"} {
						wg.Go(func() {
							limit <- struct{}{}
							defer func() { <-limit }()
							got, err := request(client, method, url+path, header)
							expected := reference.URL
							// net/http responds with 404 for a Dir, 500 for an fs.FS.
							if strings.Contains(path, "%00") {
								expected = plain.URL
							}
							want, wantErr := request(client, method, expected+path, header)
							if got != want || err != nil || wantErr != nil {
								t.Errorf("%s %s %v: %s, %v; http.Dir: %s, %v", method, path, header,
									got, err, want, wantErr)
							}
						})
					}
				}
			}
			wg.Wait()
			// Clients that disconnect in the middle of a response.
			for range 20 {
				ctx, cancel := context.WithCancel(t.Context())
				r, err := http.NewRequestWithContext(ctx, "GET", url+"/large.bin", nil)
				must(t, err)
				response, err := client.Do(r)
				must(t, err)
				_, _ = io.CopyN(io.Discard, response.Body, 1000)
				cancel()
				response.Body.Close()
			}
			transport.CloseIdleConnections()
			stop()
			if d, g := settled(t, descriptors, goroutines); d > descriptors || g > goroutines {
				stacks := make([]byte, 1<<20)
				t.Errorf("descriptors: %d, then %d; goroutines: %d, then %d\n%s", descriptors, d,
					goroutines, g, stacks[:runtime.Stack(stacks, true)])
			}
		})
	}
}

// settled returns the numbers of descriptors and goroutines. It waits up to two seconds until they
// are at most those given.
func settled(t *testing.T, descriptors, goroutines int) (int, int) {
	t.Helper()
	for wait := 0; ; wait++ {
		open, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		if d, g := len(open), runtime.NumGoroutine(); d <= descriptors && g <= goroutines ||
			wait == 100 {
			return d, g
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func TestErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	_, stop := start(t, t.TempDir())
	defer stop()
	for _, args := range [][]string{{"/none"}, {file}, {"a", "b"}, {"-backend=smoke", "."},
		{"-listen=nonsense", "."}, {"-what"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Error("no error for", args)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-help"}, &out); !errors.Is(err, flag.ErrHelp) ||
		!strings.Contains(out.String(), "usage: fileserver") {
		t.Error(err, out.String())
	}
}
