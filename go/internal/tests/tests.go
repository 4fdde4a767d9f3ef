// Package tests has the checks that the tests of all packages use.
package tests

import (
	"sync"
	"testing"
)

// Must fails the test, and ends it, on an error.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Get returns the value of a call. On an error it fails the test, and ends it:
//
//	f := tests.Get(os.Open(name))(t)
func Get[T any](value T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		Must(t, err)
		return value
	}
}

// Require fails the test, and ends it, unless a condition holds.
func Require(t testing.TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}

// Expect fails the test unless a condition holds, and lets it go on.
func Expect(t testing.TB, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Errorf(format, args...)
	}
}

// Together calls do in n goroutines, each with its number, and waits for them.
func Together(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}
