#!/bin/sh
# Tests scripts/check-columns.py on a small repository with planted lines.
set -eu
cd "$(dirname "$0")/../.."
check=$PWD/scripts/check-columns.py

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
git init -q .

# line N: a line of words, N columns long.
line() {
    printf '%s' "$(printf 'word %.0s' $(seq 40) | cut -c "1-$1")"
}

# offenders NAME: what the check finds in the repository, which has the one file NAME (from stdin).
offenders() {
    git rm -q -f --cached -r --ignore-unmatch . && mkdir -p "$(dirname "$1")" && cat >"$1"
    git add "$1"
    found=0
    python3 "$check" --repository . >out 2>err || found=$?
    [ "$(wc -l <out)" -eq 0 ] || [ "$found" -eq 1 ] || fail "$1" "the exit status is $found"
    cat out
}

fail() {
    echo "columns: $1: $2" >&2
    exit 1
}

# expect NAME WANTED: compares.
expect() {
    got=$(offenders "$1")
    [ "$got" = "$2" ] || fail "$1" "got \"$got\", expected \"$2\""
}

{ line 100; echo; line 101; echo; line 3; echo; } | expect plain.rs "plain.rs:2: 101 columns"
{ line 60; echo; } | expect short.rs ""
# A tab is 8 columns in C and 4 in Go.
{ printf '\t'; line 93; echo; } | expect tab.c "tab.c:1: 101 columns"
{ printf '\t'; line 93; echo; } | expect tab.go ""
{ printf '\t'; line 97; echo; } | expect tab.go "tab.go:1: 101 columns"
# Not bytes but characters are counted.
{ printf 'é'; line 99; echo; } | expect accent.rs ""
# A URL cannot be wrapped.
{ echo "// https://example.org/$(line 100 | tr ' ' -)"; } | expect url.rs ""
{ line 99; echo " https://example.org"; } | expect url.rs "url.rs:1: 119 columns"
# Tables and terminal output in Markdown.
{ echo "| $(line 120) |"; } | expect table.md ""
{ echo '```text'; line 120; echo; echo '```'; } | expect terminal.md ""
{ echo '```rust'; line 120; echo; echo '```'; } | expect code.md "code.md:2: 120 columns"
{ echo '```text'; echo '```'; line 120; echo; } | expect after.md "after.md:3: 120 columns"
# Generated files and data.
{ line 120; echo; } | expect Cargo.lock ""
{ line 120; echo; } | expect testdata/words ""
{ printf '\0'; line 120; echo; } | expect binary ""
# A checkout of another user, as in a container that runs as root.
{ line 101; echo; } | expect owner.rs "owner.rs:1: 101 columns"
GIT_TEST_ASSUME_DIFFERENT_OWNER=1
export GIT_TEST_ASSUME_DIFFERENT_OWNER
! git ls-files >/dev/null 2>&1 || fail owner.rs "git reads a checkout of another user"
found=$(python3 "$check" --repository . 2>err || true)
unset GIT_TEST_ASSUME_DIFFERENT_OWNER
[ "$found" = "owner.rs:1: 101 columns" ] || fail owner.rs "another user's: \"$found\""
# Without a repository, a message and no traceback.
mkdir "$work/none"
! GIT_CEILING_DIRECTORIES=$work python3 "$check" --repository "$work/none" >out 2>err ||
    fail none "it succeeds"
[ "$(grep -c Traceback err)" -eq 0 ] || fail none "a traceback"

echo "columns: 17 tests passed"
