// The command that measures the Go door, in a module of its own: its histograms are no dependency of the door.
module github.com/ringway-io/ringway/go/cmd/ringway-go

go 1.26

require (
	github.com/HdrHistogram/hdrhistogram-go v1.4.0
	github.com/ringway-io/ringway/go v0.1.0
)
