// Package skip skips tests that a machine cannot run. Where CI is set, every test is expected to
// run, and a skipped one fails.
package skip

import (
	"fmt"
	"os"
	"testing"
)

// Test skips a test with a reason; where CI is set, it fails the test. Call t.Skip for tests that
// are skipped deliberately.
func Test(t testing.TB, why ...any) {
	t.Helper()
	text := "skipped: " + fmt.Sprint(why...)
	if os.Getenv("CI") != "" {
		t.Fatal(text + " (CI is set, where no test may be skipped)")
	}
	t.Skip(text)
}
