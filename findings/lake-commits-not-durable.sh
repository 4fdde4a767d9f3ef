#!/usr/bin/env bash
# Expected: a table format with atomic commits (Delta Lake, Lance) syncs its log when it commits on
# a local disk. After a crash the table is as of the last commit or, at worst, of one before.
#
# Found (deltalake 1.6.6, pylance 14.0.2, obstore 0.12.1; Linux 6.18.44, ext4 and XFS): none of them
# calls fsync or its like for a commit or a put. If any other program calls fsync before the power
# fails, the names of the new files are on the disk and their data are not. Then
# - Delta counts the new version, of an empty log file, and reads the rows without the commit;
# - Lance's table does not open any more, only its older version by number;
# - an object that obstore replaced is empty on XFS: neither the old bytes nor the new.
#
# Why: all three write by the crate object_store or in its manner: a temporary file, then rename or
# link, without a sync. (object_store 0.14 has an option for it, LocalFileSystem::with_fsync; see
# its src/local.rs.) ext4 and XFS write names with the next commit of the journal, data some 30 s
# later; ext4 alone writes the data at a rename onto an existing name.
#
# The power failure is a copy of the disk's image, which holds what the device was given so far. A
# later `sync` would have saved all. Needs root, to mount; e2fsprogs, xfsprogs, Python 3 with venv.
set -euo pipefail
[ "$(id -u)" -eq 0 ] || { echo "needs root, to mount" >&2; exit 2; }
dir=$(mktemp -d)
cleanup() {
    umount -l "$dir/disk" 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
cd "$dir"
mkdir disk
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check deltalake==1.6.6 pylance==14.0.2 \
    pyarrow==26.0.1 obstore==0.12.1
cat >tables.py <<'TABLES'
import os, sys
import deltalake, lance, obstore, pyarrow
rows = pyarrow.table({"a": list(range(1000))})
store = obstore.store.LocalStore(os.path.abspath("disk"))
def commit(mode, content):
    deltalake.write_deltalake("disk/delta", rows, mode=mode)
    lance.write_dataset(rows, "disk/lance", mode="create" if mode == "error" else mode)
    obstore.put(store, "object", content)
def answer(question):
    try:
        return str(question())
    except Exception as error:
        return type(error).__name__
if sys.argv[1] == "write":
    commit("error", b"old bytes")
    os.sync()
    commit("append", b"new bytes")
    other = os.open("disk/other", os.O_RDWR | os.O_CREAT)
    os.write(other, b"of another program")
    os.fsync(other)
else:
    table = lambda: deltalake.DeltaTable("disk/delta")
    print(answer(lambda: table().version()), answer(lambda: table().to_pyarrow_table().num_rows),
          answer(lambda: lance.dataset("disk/lance").count_rows()),
          answer(lambda: lance.dataset("disk/lance", version=1).count_rows()),
          answer(lambda: obstore.get(store, "object").bytes().to_bytes()).replace(" ", "_"))
TABLES
echo "Linux $(uname -r), an append of 1000 rows to 1000 that was committed, after the crash:"
failed=0
for fs in ext4 xfs; do
    truncate -s 512M image
    mkfs.$fs image >mkfs.log 2>&1
    mount -o loop image disk
    venv/bin/python tables.py write
    cp --sparse=always image crashed
    umount disk
    mount -o loop crashed disk
    read -r version delta lance first object <<<"$(venv/bin/python tables.py read)"
    umount disk
    rm image crashed
    echo "  $fs: Delta version $version with $delta rows; Lance $lance, version 1 $first rows;" \
        "object $object"
    [ "$version/$delta/$lance/$first" = 1/1000/ValueError/1000 ] || failed=1
    if [ $fs = xfs ]; then [ "$object" = "b''" ] || failed=1; fi
done
[ "$failed" -eq 0 ] || { echo "not as found" >&2; exit 1; }
