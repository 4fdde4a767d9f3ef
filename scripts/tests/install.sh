#!/bin/sh
# Tests `make install-command` with a fake command that was built before, without cargo.
set -eu
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/target/release"
cat >"$work/target/release/ringway" <<'END'
#!/bin/sh
[ "$1" = generate ] && mkdir -p "$2/man1" "$2/completions"
touch "$2/man1/ringway.1" "$2/completions/_ringway"
touch "$2/completions/ringway.bash" "$2/completions/ringway.fish"
END
chmod +x "$work/target/release/ringway"

fail() {
    echo "install: $1" >&2
    exit 1
}

unset CARGO_BUILD_TARGET LIBDIR INCLUDEDIR MANDIR GENERATOR
make -s --no-print-directory install-command CARGO=no-such-program CARGO_TARGET_DIR="$work/target" \
    DESTDIR="$work/root" PREFIX=/usr || fail "make install-command fails"
installed=$(cd "$work/root/usr" && find . -type f | sort | tr '\n' ' ')
wanted="./bin/ringway ./share/bash-completion/completions/ringway \
./share/fish/vendor_completions.d/ringway.fish ./share/man/man1/ringway.1 \
./share/zsh/vendor-completions/_ringway "
[ "$installed" = "$wanted" ] || fail "installed: $installed"
# After `sudo make install`, files of root would make the user's next install fail.
left=$(cd "$work/target" && find . -type f)
[ "$left" = ./release/ringway ] || fail "left in the target directory: $left"
echo "install: passed"
