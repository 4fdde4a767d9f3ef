#!/usr/bin/env bash
# Expected: a file that safetensors writes is one that safetensors reads. An empty dictionary of
# tensors is accepted, an empty dictionary of metadata too, and so are both.
#
# Found (safetensors 0.8.0): each alone makes a readable file. Both together make one whose header
# is not JSON: the closing brace of the tensors comes before the metadata. save_file reports
# success; load_file and safe_open then raise SafetensorError. A writer of shards meets it when its
# last shard is empty.
#
# Source: the header, printed below.
#
# Needs Python 3 with venv.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check safetensors==0.8.0 numpy==2.3.5
cat >empty.py <<'EMPTY'
import json, sys
import numpy
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
def saved(tensors, metadata):
    save_file(tensors, "file", metadata=metadata)
    with open("file", "rb") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
    try:
        return header, len(load_file("file"))
    except SafetensorError as error:
        return header, str(error)
one = {"t": numpy.zeros(1)}
found = [saved(*each) for each in ((one, {}), ({}, None), ({}, {"a": "b"}), ({}, {}))]
for header, loaded in found:
    print(f"  {header.decode()}\n    read: {loaded}")
try:
    json.loads(found[3][0])
    is_json = True
except ValueError:
    is_json = False
sys.exit([found[0][1], found[1][1], is_json] != [1, 0, False] or "invalid JSON" not in found[3][1])
EMPTY
echo "safetensors 0.8.0, headers as written:"
venv/bin/python empty.py || { echo "not as found" >&2; exit 1; }
