#!/bin/sh
# Makes the Debian source package of the last commit and builds it, in target/deb.
#
#     scripts/deb.sh             on this machine
#     scripts/deb.sh --source    only the source package
#     scripts/deb.sh SUITE       as root, in a new, minimal Debian of that release; runs lintian
#
# Rust comes from this machine in each case; debian/README.source says why. MMDEBSTRAP is the
# command that makes the minimal Debian, if mmdebstrap needs further options.
set -eu
cd "$(dirname "$0")/.."
root=$PWD
export PATH="$PATH:$HOME/.cargo/bin"

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
out=${CARGO_TARGET_DIR:-$root/target}/deb
name=ringway-$version
# Everything in the source package has the time of the commit.
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
suite=${1:-}

# archive FORMAT FILE DIRECTORY [TAR OPTION...]
archive() {
    format=$1 file=$2 directory=$3
    shift 3
    tar --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner "$@" -cf - "$directory" |
        $format >"$file"
}

rm -rf "$out"
mkdir -p "$out"
git archive --prefix="$name/" HEAD | tar -x -C "$out"
cd "$out"
archive "gzip -n -9" "ringway_$version.orig.tar.gz" "$name" --exclude="$name/debian"
(cd "$name" && cargo vendor --quiet --locked --versioned-dirs >/dev/null)
mv "$name/vendor" vendor
archive "xz -T0 -2" "ringway_$version.orig-vendor.tar.xz" vendor
mv vendor "$name/vendor"

if [ "$suite" = "" ]; then
    (cd "$name" && dpkg-buildpackage -us -uc)
    exit
fi
(cd "$name" && dpkg-source -b .)
[ "$suite" != --source ] || exit 0

# The minimal Debian, with Rust's toolchain in /opt/rust. It is removed at the end.
debian=$(mktemp -d)
remove() {
    umount "$debian/opt/rust" "$debian/proc" 2>/dev/null || true
    rm -rf --one-file-system "$debian"
}
trap remove EXIT
${MMDEBSTRAP:-mmdebstrap} --quiet --variant=buildd --include=debhelper,lintian "$suite" "$debian"
mkdir -p "$debian/opt/rust" "$debian/build"
mount --bind -o ro "$(rustc --print sysroot)" "$debian/opt/rust"
mount -t proc proc "$debian/proc"
cp ./*.dsc ./*.tar.* "$debian/build"
cat >"$debian/build/build.sh" <<END
set -eu
cd /build
dpkg-source -x *.dsc
cd $name
dpkg-buildpackage -us -uc -b
# The distribution is "unstable", whatever release this is built in.
lintian --allow-root --info --suppress-tags bad-distribution-in-changes-file ../*.changes ../*.dsc
END
# unshare: without a network, so that nothing but the source package is used.
unshare --net chroot "$debian" /usr/bin/env -i HOME=/root LANG=C.UTF-8 \
    PATH=/opt/rust/bin:/usr/sbin:/usr/bin:/sbin:/bin sh /build/build.sh
cp "$debian"/build/*.deb "$debian"/build/*.buildinfo "$debian"/build/*.changes .
ls -l ./*.deb
