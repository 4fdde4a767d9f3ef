// Package core reads the sources of the Rust core and engine, for tests that compare what they have
// in common with this module.
package core

import (
	"go/constant"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// dir is the directory crates/. Without it the test is skipped: the module was fetched by itself.
func dir(t testing.TB) string {
	t.Helper()
	at, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for ; at != filepath.Dir(at); at = filepath.Dir(at) {
		if crates := filepath.Join(at, "crates"); isDir(crates) {
			return crates
		}
	}
	t.Skip("skipped: the Rust sources are not here")
	return ""
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// File returns the content of a file below crates/.
func File(t testing.TB, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(dir(t), name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Constant returns the value of an integer or a Duration, in nanoseconds, that is a constant in a
// file below crates/, or in one file of a directory there. Expressions have to be those of Go.
func Constant(t testing.TB, place, name string) int64 {
	t.Helper()
	definition := regexp.MustCompile(`\bconst ` + name + `: \w+ =\s([^;]+);`)
	var found [][]string
	err := filepath.WalkDir(filepath.Join(dir(t), place),
		func(file string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(file) != ".rs" {
				return err
			}
			source, err := os.ReadFile(file)
			found = append(found, definition.FindAllStringSubmatch(string(source), -1)...)
			return err
		})
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %d constants %s: %v", place, len(found), name, err)
	}
	text := found[0][1]
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
		t.Fatalf("%s: %s is %s: %v", place, name, text, err)
	}
	n, exact := constant.Int64Val(constant.ToInt(value.Value))
	if !exact {
		t.Fatalf("%s: %s is %s", place, name, text)
	}
	return n
}
