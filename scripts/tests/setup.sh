#!/bin/sh
# Tests scripts/setup.sh on a PATH of its own, where apt-get, sudo and id are fakes that log their
# arguments. Nothing is installed.
set -eu
cd "$(dirname "$0")/../.."
setup=$PWD/scripts/setup.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bin=$work/bin
log=$work/log
count=0

# fake NAME BODY: puts a program on the tests' PATH.
fake() {
    printf '#!/bin/sh\n%s\n' "$2" >"$bin/$1"
    chmod +x "$bin/$1"
}

# machine NAME...: a PATH with the system's basic tools and nothing else but programs NAME, which
# succeed. The user is an ordinary one and has no sudo; apt-get installs what it is told to.
machine() {
    rm -rf "$bin"
    mkdir "$bin"
    for tool in sh sed sort tail dirname env chmod rm cat; do
        ln -s "$(command -v "$tool")" "$bin/$tool"
    done
    for name in "$@"; do
        fake "$name" 'cat >/dev/null 2>&1 </dev/null; exit 0'
    done
    fake id 'echo 1000'
    fake apt-get 'echo "apt-get $*" >>"$LOG"'
    : >"$log"
}

root() {
    fake id 'echo 0'
}

# sudo_without_password / sudo_with_password: whether `sudo -n` works.
sudo_without_password() {
    fake sudo '[ "$1" = -n ] || echo "sudo $*" >>"$LOG"; [ "$1" = -n ] || exec "$@"'
}

sudo_with_password() {
    fake sudo '[ "$1" = -n ] || echo "sudo $*" >>"$LOG"; exit 1'
}

# run NEED...: runs setup.sh on that machine, and keeps its status, stdout and stderr.
run() {
    status=0
    env -i PATH="$bin" LOG="$log" BIN="$bin" ${LIST:+SETUP=list} "$bin/sh" "$setup" "$@" \
        >"$work/out" 2>"$work/err" || status=$?
}

fail() {
    echo "setup: $test: $1" >&2
    echo "--- status $status, stdout, stderr, commands:" >&2
    cat "$work/out" "$work/err" "$log" >&2
    exit 1
}

status_is() {
    [ "$status" -eq "$1" ] || fail "the exit status is $status, not $1"
}

# prints FILE TEXT / prints_nothing FILE: whole lines of what was printed or run.
prints() {
    grep -qxF -- "$2" "$1" || fail "no line \"$2\""
}

prints_nothing() {
    [ ! -s "$1" ] || fail "$(basename "$1") is not empty"
}

start() {
    test=$1
    count=$((count + 1))
}

INSTALL="apt-get install -y --no-install-recommends"

start "prints nothing and runs nothing when all is there"
machine valgrind cmake
run valgrind cmake
status_is 0
prints_nothing "$work/out"
prints_nothing "$work/err"
prints_nothing "$log"

start "root installs everything missing with one command, and the command is printed first"
machine
root
run valgrind cmake valgrind mandoc
status_is 0
prints "$work/err" "ringway: missing: valgrind, cmake, mandoc"
prints "$work/err" "ringway: installing it with: $INSTALL valgrind cmake mandoc"
prints "$log" "$INSTALL valgrind cmake mandoc"
[ "$(wc -l <"$log")" -eq 1 ] || fail "apt-get ran more than once"

start "a user with sudo and no password installs through sudo"
machine
sudo_without_password
run valgrind cmake
status_is 0
prints "$work/err" "ringway: installing it with: sudo $INSTALL valgrind cmake"
prints "$log" "sudo env DEBIAN_FRONTEND=noninteractive $INSTALL valgrind cmake"

start "a user without the right to install is told the one command"
machine
run valgrind cmake
status_is 1
prints "$work/err" "ringway: install it with: sudo $INSTALL valgrind cmake"
prints_nothing "$log"

start "a user whose sudo asks for a password is told the one command"
machine
sudo_with_password
run valgrind cmake
status_is 1
prints "$work/err" "ringway: install it with: sudo $INSTALL valgrind cmake"
prints_nothing "$log"

start "SETUP=list only prints the command, for root too"
machine
root
LIST=1 run valgrind cmake
status_is 1
prints "$work/out" "$INSTALL valgrind cmake"
prints_nothing "$log"

start "SETUP=list succeeds when nothing is missing"
machine valgrind
LIST=1 run valgrind
status_is 0
prints "$work/out" "ringway: nothing is missing"
prints_nothing "$log"

start "package lists are updated once when the first try fails"
machine
root
fake apt-get 'echo "apt-get $*" >>"$LOG"
case $1 in update) : >"$BIN/updated" ;; *) [ -e "$BIN/updated" ] || exit 100 ;; esac'
run valgrind
status_is 0
prints "$log" "apt-get update"
[ "$(wc -l <"$log")" -eq 3 ] || fail "expected install, update, install"

start "a package that cannot be installed is an error that names the command"
machine
root
fake apt-get 'exit 100'
run valgrind
status_is 1
prints "$work/err" "ringway: could not install the packages with: $INSTALL valgrind"

start "without apt-get the command is still named"
machine
rm "$bin/apt-get"
run valgrind
status_is 1
prints "$work/err" \
    "ringway: there is no apt-get here. On Debian the command is: sudo $INSTALL valgrind"

start "Rust is reported, and nothing is installed before it is there"
machine
root
run rust valgrind
status_is 1
grep -q "ringway: Rust .* is missing. Install it with rustup" "$work/err" || fail "no word of Rust"
prints "$work/err" "ringway: install it with: $INSTALL valgrind"
prints_nothing "$log"

start "an old Rust is reported with both versions"
machine cargo
fake rustc 'echo "rustc 1.40.0 (x)"'
run rust
status_is 1
grep -q "ringway: Rust 1.40 is too old: 1.* or newer is needed" "$work/err" || fail "no versions"

start "tests need a newer Rust than the libraries, and it is reported once"
machine cargo
fake rustc 'echo "rustc 1.88.0 (x)"'
run rust
status_is 0
run rust rust-current
status_is 1
[ "$(grep -c "ringway: Rust 1.88 is too old: 1.* or newer is needed" "$work/err")" -eq 1 ] ||
    fail "not one line of Rust"

start "a rustc of rustup without a toolchain is reported as one that does not run"
machine cargo
fake rustc 'exit 1'
run rust
status_is 1
grep -q "rustc does not run. Try: rustup default stable" "$work/err" || fail "no fix"

start "missing parts of Rust are added with one command"
machine
fake cargo 'exit 101'
fake rustc 'echo /nowhere'
run fmt clippy rust-src
status_is 1
prints "$work/err" "ringway: Missing parts of Rust: rustfmt clippy rust-src. \
Install them with: rustup component add rustfmt clippy rust-src"

start "an old Go is reported with both versions"
machine
fake go 'echo go1.19.8'
run go
status_is 1
grep -q "ringway: Go 1.19 is too old: 1.* or newer is needed" "$work/err" || fail "no versions"

start "OCaml and its libraries are missing"
machine
run ocaml ocaml-test
status_is 1
prints "$work/err" "ringway: missing: OCaml, OCaml's libraries for tests"
prints "$work/err" "ringway: install it with: sudo $INSTALL ocaml ocaml-findlib ocaml-dune \
liblwt-ocaml-dev libalcotest-ocaml-dev libqcheck-ocaml-dev libcohttp-lwt-unix-ocaml-dev \
libbigstringaf-ocaml-dev"

start "an OCaml without Lwt and a library for tests lacks both"
machine ocamlopt dune
fake ocamlfind 'case " $* " in *" lwt.unix "* | *" qcheck "*) exit 2 ;; esac'
run ocaml ocaml-test
status_is 1
prints "$work/err" "ringway: missing: OCaml, OCaml's libraries for tests"

start "an OCaml with all libraries needs nothing"
machine ocamlopt dune ocamlfind
run ocaml ocaml-test
status_is 0
prints_nothing "$work/err"

start "a Python without venv"
machine
fake python3 'exit 1'
run python3 python3-venv
status_is 1
prints "$work/err" "ringway: missing: Python's venv"

start "without /etc/services, netbase is missing"
machine
fake getent 'exit 2'
run services
status_is 1
prints "$work/err" "ringway: install it with: sudo $INSTALL netbase"

start "/etc/services is there"
machine
fake getent 'test "$*" = "services http"'
run services
status_is 0
prints_nothing "$work/err"

start "an ordinary user does not need mkfs"
machine
run mkfs
status_is 0

start "an unknown need is an error"
machine
run no-such-program
status_is 2

# `make SETUP=list TARGET` must name everything the target's recipes ask for, so what the recipes
# ask for (`make -n` prints it, also those of the Makefiles below) is compared with the list.
start "each make target lists all that its recipes ask for"
status=0
: >"$work/out"
: >"$work/err"
: >"$log"
for target in $(sed -n 's/^\([a-z-]*\):.*## .*/\1/p' Makefile); do
    listed=" $(make -s --no-print-directory print-needs GOALS="$target") "
    make -n "$target" 2>/dev/null |
        sed -n 's/.*scripts\/setup\.sh \([a-z0-9+ -]*\).*/\1/p' | tr ' ' '\n' | sort -u |
        while read -r need; do
            case $listed in
                *" $need "*) ;;
                *) [ -z "$need" ] || fail "make $target needs $need, which its list lacks" ;;
            esac
        done
done

start "targets whose scripts call git or cargo list them"
lists() {
    case " $(make -s --no-print-directory print-needs GOALS="$1" SUITE="$3") " in
        *" $2 "*) ;;
        *) fail "make $1 SUITE=$3 needs $2, which its list lacks" ;;
    esac
}
for target in check test dist reproducible deb; do
    lists $target git ""
    lists $target rust ""
done
lists deb git bookworm
lists deb rust bookworm

echo "setup: $count tests passed"
