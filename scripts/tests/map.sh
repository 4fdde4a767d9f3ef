#!/bin/sh
# Tests that tests/README.md has each test program of the core and of the engine.
set -eu
cd "$(dirname "$0")/../.."
status=0
for program in crates/ringway-core/tests/* crates/ringway/tests/*; do
    name=$(basename "$program" .rs)
    case $name in common | proptest-regressions | *.*) continue ;; esac
    grep -q "\`$name\`" tests/README.md || {
        echo "tests/README.md has no line for $program" >&2
        status=1
    }
done
exit $status
