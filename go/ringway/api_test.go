// The exported names, compared between systems.

package ringway

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The package exports the same names on every system, so that a program for Linux compiles on the
// machine it is written on.
func TestSameAPIOnAllSystems(t *testing.T) {
	here := exported(t, "linux", "amd64")
	require(t, len(here) >= 50, "only %d names were found: %v", len(here), here)
	for _, system := range []string{"darwin/arm64", "windows/amd64", "freebsd/amd64", "linux/386"} {
		os, arch, _ := strings.Cut(system, "/")
		there := exported(t, os, arch)
		for _, name := range here {
			expect(t, slices.Contains(there, name), "%s lacks %s", system, name)
		}
		for _, name := range there {
			expect(t, slices.Contains(here, name), "%s alone has %s", system, name)
		}
	}
}

// exported returns functions, methods, types, constants and variables, with signatures.
func exported(t *testing.T, os, arch string) (names []string) {
	system := build.Default
	system.GOOS, system.GOARCH, system.CgoEnabled = os, arch, false
	dir := get(system.ImportDir(".", 0))(t)
	for _, name := range dir.GoFiles {
		file := get(parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution))(t)
		for _, declaration := range file.Decls {
			switch d := declaration.(type) {
			case *ast.FuncDecl:
				receiver := ""
				if d.Recv != nil {
					receiver = types.ExprString(d.Recv.List[0].Type) + "."
				}
				if d.Name.IsExported() && ast.IsExported(strings.Trim(receiver, "*.")+"A") {
					names = append(names, fmt.Sprintf("%s%s(%s) (%s)", receiver, d.Name.Name,
						fields(d.Type.Params), fields(d.Type.Results)))
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() {
							names = append(names, "type "+s.Name.Name)
						}
					case *ast.ValueSpec:
						for _, name := range s.Names {
							if name.IsExported() {
								names = append(names, d.Tok.String()+" "+name.Name)
							}
						}
					}
				}
			}
		}
	}
	return names
}

// fields returns the types of parameters, without their names.
func fields(list *ast.FieldList) string {
	var all []string
	if list != nil {
		for _, field := range list.List {
			for range max(len(field.Names), 1) {
				all = append(all, types.ExprString(field.Type))
			}
		}
	}
	return strings.Join(all, ", ")
}

// Documentation shows no fields and no methods of a type that is an alias of an internal one.
func TestNoAliasOfAnInternalType(t *testing.T) {
	for _, dir := range []string{".", "../ring"} {
		names := get(filepath.Glob(filepath.Join(dir, "*.go")))(t)
		require(t, len(names) > 10, "%v", names)
		for _, name := range names {
			file, err := parser.ParseFile(token.NewFileSet(), name, nil,
				parser.SkipObjectResolution)
			must(t, err)
			internal := map[string]bool{}
			for _, one := range file.Imports {
				if path := strings.Trim(one.Path.Value, `"`); strings.Contains(path, "/internal/") {
					internal[filepath.Base(path)] = true
				}
			}
			ast.Inspect(file, func(node ast.Node) bool {
				spec, isType := node.(*ast.TypeSpec)
				if isType && spec.Assign.IsValid() && spec.Name.IsExported() {
					of, _, _ := strings.Cut(types.ExprString(spec.Type), ".")
					expect(t, !internal[of], "%s: %s is an alias", name, spec.Name.Name)
				}
				return true
			})
		}
	}
}
