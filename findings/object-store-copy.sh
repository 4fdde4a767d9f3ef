#!/usr/bin/env bash
# Expected: `copy` of an object store makes a second object with the same bytes, on a local
# directory too: afterwards the two have nothing to do with each other.
#
# Found (obstore 0.12.1, Python's binding of the Rust crate object_store): on a local directory the
# copy is a hard link. A program that appends to the file of the copy changes the original. If the
# target exists, the link is made under a hidden name and renamed onto the target. When these two
# are one file already, rename(2) does nothing, by its definition, and the hidden name stays: 20
# more copies of `a` to `b` leave 20 more files, which `list` does not show and nothing removes.
#
# Source: object_store's src/local.rs, copy_opts, whose documentation mentions the link but not what
# it leaves; rename(2) on two names of one file.
#
# Needs Python 3 with venv.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mkdir store
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check obstore==0.12.1
cat >copy.py <<'COPY'
import os, sys
import obstore
store = obstore.store.LocalStore(os.path.abspath("store"))
obstore.put(store, "a", b"original")
for _ in range(21):
    obstore.copy(store, "a", "b")
listed = sorted(each["path"] for page in obstore.list(store) for each in page)
files = len(os.listdir("store"))
with open("store/b", "ab") as log:
    log.write(b", and an appended line")
original = bytes(obstore.get(store, "a").bytes())
print(f"  listed: {listed}; files in the directory: {files}\n  a after an append to b: {original}")
sys.exit((listed, files, original) != (["a", "b"], 22, b"original, and an appended line"))
COPY
echo "obstore 0.12.1, 21 copies of a to b on a local directory:"
venv/bin/python copy.py || { echo "not as found" >&2; exit 1; }
