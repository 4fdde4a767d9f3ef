#!/bin/sh
# Tests scripts/repeat-failures.sh on commands that fail and succeed.
set -eu
cd "$(dirname "$0")/../.."
repeat=$PWD/scripts/repeat-failures.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "repeat-failures: $1" >&2
    cat "$work/out" >&2
    exit 1
}

# A command that succeeds prints what it prints.
"$repeat" "$work/log" sh -c 'echo one; echo two >&2' >"$work/out"
[ "$(cat "$work/out")" = "$(printf 'one\ntwo')" ] || fail "the output of a success is changed"

# One that fails keeps its status, and its failures come last.
cat >"$work/failing" <<'END'
cat <<'TEXT'
test a::passes ... ok
test a::fails ... FAILED
failures:
---- a::fails stdout ----
assertion failed: 1 == 2
   3: a::backtrace
             at ./src/lib.rs:1:1
test result: FAILED. 1 passed; 1 failed
Compiling something for long
TEXT
exit 3
END
status=0
"$repeat" "$work/log" sh "$work/failing" >"$work/out" || status=$?
[ "$status" -eq 3 ] || fail "the exit status is $status, not 3"
[ "$(tail -n 1 "$work/out")" = "test a::fails ... FAILED" ] || fail "the failed test is not last"
[ "$(grep -c "assertion failed: 1 == 2" "$work/out")" -eq 2 ] || fail "the details are not repeated"
[ "$(grep -c "a::backtrace" "$work/out")" -eq 1 ] || fail "the backtrace is repeated"
grep -q "Compiling something for long" "$work/log" || fail "the log is not whole"

# Of a command that says it in words of its own, the last lines are repeated before make's.
cat >"$work/failing" <<'END'
seq 1 60
echo "failed.c:97: result is 0, not -5"
echo "make[3]: *** [Makefile:141: sanitized/tests/failed.c] Error 1"
echo "make[2]: *** [Makefile:301: test-native] Error 2"
exit 2
END
"$repeat" "$work/log" sh "$work/failing" >"$work/out" || true
[ "$(grep -c "result is 0, not -5" "$work/out")" -eq 2 ] || fail "the last lines are not repeated"
[ "$(grep -cx 60 "$work/out")" -eq 2 ] || fail "the lines before the last are not repeated"
[ "$(grep -cx 20 "$work/out")" -eq 1 ] || fail "too much is repeated"
tail -n 2 "$work/out" | grep -q "sanitized/tests/failed.c" || fail "what failed is not last"

# What dune, alcotest and pytest say is in short, too.
cat >"$work/failing" <<'END'
echo " conformance alias test/ringway/runtest (exit 1)"
echo "kaio: a chain runs in order: 1 wrong"
echo "> [FAIL]        queue            3   uring: reaps."
echo "FAILED tests/test_bulk.py::test_memory - assert 2 < 1"
echo "make[4]: *** [Makefile:70: test] Error 1"
exit 2
END
"$repeat" "$work/log" sh "$work/failing" >"$work/out" || true
[ "$(sed -n '/^In short:/,$p' "$work/out" | wc -l)" -eq 5 ] || fail "not each failure is in short"
