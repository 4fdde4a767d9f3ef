//go:build linux

// Command fileserver serves a directory by HTTP, from ringway's files: http.FS takes any fs.FS.
//
//	go run ./examples/fileserver -dir /srv/data -listen localhost:8080
package main

import (
	"flag"
	"log"
	"net/http"

	ringway "github.com/ringway-io/ringway/go"
)

func main() {
	dir := flag.String("dir", ".", "what to serve")
	listen := flag.String("listen", "localhost:8080", "where")
	flag.Parse()
	log.Println(ringway.Explain())
	log.Fatal(http.ListenAndServe(*listen, http.FileServer(http.FS(ringway.DirFS(*dir)))))
}
