#!/bin/sh
# Tests `make install-command` with a fake command that was built before, and `make uninstall`,
# without cargo.
set -eu
cd "$(dirname "$0")/../.."

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/target/release"
cat >"$work/target/release/ringway" <<'END'
#!/bin/sh
[ "$1" = generate ] && mkdir -p "$2/man1" "$2/completions"
for page in ringway ringway-bench ringway-probe ringway-sum; do touch "$2/man1/$page.1"; done
touch "$2/completions/_ringway"
touch "$2/completions/ringway.bash" "$2/completions/ringway.fish"
END
chmod +x "$work/target/release/ringway"

fail() {
    echo "install: $1" >&2
    exit 1
}

unset CARGO_BUILD_TARGET LIBDIR INCLUDEDIR MANDIR OCAMLDIR GENERATOR
make -s --no-print-directory install-command CARGO=no-such-program CARGO_TARGET_DIR="$work/target" \
    DESTDIR="$work/root" PREFIX=/usr || fail "make install-command fails"
installed=$(cd "$work/root/usr" && find . -type f | sort | tr '\n' ' ')
wanted="./bin/ringway ./share/bash-completion/completions/ringway \
./share/fish/vendor_completions.d/ringway.fish ./share/man/man1/ringway-bench.1 \
./share/man/man1/ringway-probe.1 ./share/man/man1/ringway-sum.1 ./share/man/man1/ringway.1 \
./share/zsh/vendor-completions/_ringway "
[ "$installed" = "$wanted" ] || fail "installed: $installed"
# After `sudo make install`, files of root would make the user's next install fail.
left=$(cd "$work/target" && find . -type f)
[ "$left" = ./release/ringway ] || fail "left in the target directory: $left"

# The libraries, which have tests of their installation, and files of others.
root=$work/root/usr
mkdir -p "$root/include" "$root/share/man/man3" "$root/share/man/man7" "$root/lib/pkgconfig" \
    "$root/lib/cmake/ringway" "$root/lib/ocaml/ringway" "$root/lib/ocaml/ringway-lwt" \
    "$root/lib/ocaml/stublibs" "$root/lib/ocaml/other"
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
for file in include/ringway.h include/libaio.h lib/libringway.a lib/libringway.so.0 \
    "lib/libringway.so.$version" lib/libioqueue.a lib/libioqueue.so.0 lib/pkgconfig/ringway.pc \
    lib/cmake/ringway/ringway-config.cmake share/man/man3/ringway_create.3 \
    share/man/man7/ringway.7 include/ringway_rocksdb.h lib/libringway_rocksdb.so.0 \
    lib/ocaml/ringway/META lib/ocaml/ringway-lwt/META \
    lib/ocaml/stublibs/dllringway_stubs.so lib/ocaml/other/META \
    share/man/man1/ringway-other.1 bin/other; do
    touch "$root/$file"
done
ln -s libringway.so.0 "$root/lib/libringway.so"
ln -s libringway_rocksdb.so.0 "$root/lib/libringway_rocksdb.so"
for times in once twice; do
    make -s --no-print-directory uninstall CARGO=no-such-program DESTDIR="$work/root" PREFIX=/usr ||
        fail "make uninstall, $times, fails"
    left=$(cd "$root" && find . ! -type d | sort | tr '\n' ' ')
    others="./bin/other ./include/libaio.h ./lib/ocaml/other/META ./share/man/man1/ringway-other.1 "
    [ "$left" = "$others" ] || fail "left after make uninstall: $left"
done
echo "install: passed"
