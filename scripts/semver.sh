#!/bin/sh
# Compares the public API of each library crate with its last release, the newest tag v*, by
# cargo-semver-checks. An incompatible change needs a new minor version before 1.0, and a new major
# version after it. Options are passed to `cargo semver-checks`.
set -eu
cd "$(dirname "$0")/.."

# The newest tag that is an ancestor of this commit and not this commit itself.
if ! release=$(git describe --tags --abbrev=0 --match 'v[0-9]*' HEAD^ 2>/dev/null); then
    echo "semver: there is no earlier release (no tag v*) to compare with; nothing was checked"
    exit 0
fi
./scripts/setup.sh rust cc semver
cargo semver-checks --baseline-rev "$release" -p ringway-core -p ringway "$@"
