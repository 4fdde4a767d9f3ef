// Package skip leaves tests out, and never silently: where CI is set everything is expected to be there, and a test that
// is left out fails.
package skip

import (
	"fmt"
	"os"
	"testing"
)

// Test leaves the test out, and says why; where CI is set it fails. What is left out on purpose calls t.Skip instead.
func Test(t testing.TB, why ...any) {
	t.Helper()
	text := "skipped: " + fmt.Sprint(why...)
	if os.Getenv("CI") != "" {
		t.Fatal(text + " (CI is set, where this is not expected)")
	}
	t.Skip(text)
}
