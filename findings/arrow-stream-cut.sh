#!/usr/bin/env bash
# Expected: an Arrow IPC stream ends with a mark (eight bytes), so a reader of a local file notices
# a stream whose writer was killed: it raises an error, as it does for the file format and for
# Parquet, whose ends are missing then.
#
# Found (pyarrow 26.0.1, polars 2.1.0): a stream that ends between two batches, without the mark, is
# read as a whole one, without error or warning. A writer that is killed leaves just that, since
# each batch is written when it is given. 6 of 10 batches read as a table of 6. Only a stream that
# ends inside a batch raises an error. The same writer in the file format is refused.
#
# Why: the format (Columnar format, "IPC Streaming Format") lets a writer end a stream by the mark
# or by closing it, and for a file the end of the file counts as closing. So a stored stream carries
# no proof that it is whole: keep the number of rows, or rename the file when it is finished.
#
# Needs Python 3 with venv.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
python3 -m venv venv
venv/bin/pip install --quiet --disable-pip-version-check pyarrow==26.0.1 polars==2.1.0
cat >write.py <<'WRITE'
import os, signal, sys
import pyarrow
batch = pyarrow.record_batch({"a": list(range(1000))})
make = pyarrow.ipc.new_stream if sys.argv[1] == "stream" else pyarrow.ipc.new_file
writer = make(pyarrow.OSFile(sys.argv[1], "wb"), batch.schema)
for number in range(10):
    if number == 6:
        os.kill(os.getpid(), signal.SIGKILL)
    writer.write_batch(batch)
WRITE
cat >read.py <<'READ'
import os, sys
import polars, pyarrow
def rows(read):
    try:
        return read()
    except Exception as error:
        return type(error).__name__
readers = {
    "pyarrow": lambda name: pyarrow.ipc.open_stream(pyarrow.OSFile(name)).read_all().num_rows,
    "polars": lambda name: polars.read_ipc_stream(name).height,
    "pyarrow, file format": lambda _: pyarrow.ipc.open_file("file").num_record_batches,
}
with open("stream", "rb") as whole, open("inside", "wb") as inside:
    inside.write(whole.read()[:-1000])
found = {}
for name, read in readers.items():
    found[name] = rows(lambda: read("stream")), rows(lambda: read("inside"))
    print(f"  {name}: {found[name][0]}; cut inside a batch: {found[name][1]}")
sys.exit([each[0] for each in found.values()] != [6000, 6000, "ArrowInvalid"]
         or any(isinstance(each[1], int) for each in found.values()))
READ
for format in stream file; do
    (venv/bin/python write.py $format || true) 2>/dev/null
done
echo "Rows of a stream whose writer was killed after 6 of 10 batches of 1000 rows:"
venv/bin/python read.py || { echo "not as found" >&2; exit 1; }
