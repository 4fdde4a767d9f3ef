module github.com/ringway-io/ringway/go/net/nettest

go 1.26.0

require (
	github.com/ringway-io/ringway/go v0.1.0
	golang.org/x/net v0.62.0
)
