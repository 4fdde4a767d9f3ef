module github.com/ringway-io/ringway/go

go 1.26
