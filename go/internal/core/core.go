// Package core reads the sources of the Rust core and engine, for tests that compare what they have
// in common with this module.
package core

import (
	"go/constant"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// File returns the content of a file below crates/. Without it the test is skipped: the module was
// fetched by itself.
func File(t testing.TB, name string) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for at := dir; ; at = filepath.Dir(at) {
		content, err := os.ReadFile(filepath.Join(at, "crates", name))
		if err == nil {
			return string(content)
		}
		if _, err := os.Stat(filepath.Join(at, "crates")); err == nil {
			t.Fatal("no such file below crates/: ", name)
		}
		if at == filepath.Dir(at) {
			t.Skip("skipped: the Rust sources are not here")
		}
	}
}

// Constant returns the value of an integer or a Duration, in nanoseconds, that is a constant in a
// file below crates/. Expressions have to be those of Go.
func Constant(t testing.TB, file, name string) int64 {
	t.Helper()
	source := File(t, file)
	found := regexp.MustCompile(`\bconst ` + name + `: \w+ =\s([^;]+);`).FindStringSubmatch(source)
	if found == nil {
		t.Fatalf("%s has no constant %s", file, name)
	}
	text := found[1]
	for _, change := range [][2]string{
		{`^if cfg!\(\w+\) \{.*\} else \{(.*)\}$`, "$1"}, // The value outside of one kind of tests.
		{`Duration::from_secs\((.*)\)`, "$1 * 1000000000"},
		{`Duration::from_millis\((.*)\)`, "$1 * 1000000"},
		{`Duration::from_micros\((.*)\)`, "$1 * 1000"},
	} {
		text = regexp.MustCompile(change[0]).ReplaceAllString(text, change[1])
	}
	value, err := types.Eval(token.NewFileSet(), nil, token.NoPos, text)
	if err != nil {
		t.Fatalf("%s: %s is %s: %v", file, name, found[1], err)
	}
	n, exact := constant.Int64Val(constant.ToInt(value.Value))
	if !exact {
		t.Fatalf("%s: %s is %s", file, name, found[1])
	}
	return n
}
