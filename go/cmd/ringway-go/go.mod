// The benchmark. It is a module of its own, so that the main module has no dependencies.
module github.com/ringway-io/ringway/go/cmd/ringway-go

go 1.26

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/ringway-io/ringway/go v0.1.0
)
