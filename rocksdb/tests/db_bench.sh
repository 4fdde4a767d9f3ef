#!/bin/sh
# Runs RocksDB's own db_bench, which was not compiled for ringway, with the shared object preloaded:
# fills, compacts and reads a small database with each backend and verifies checksums. Fails if
# db_bench fails or if no read was submitted to a queue.
#
#	tests/db_bench.sh libringway_rocksdb.so testing/libringway_rocksdb.so
#
# The second shared object is built for tests and injects faults. The first must refuse to.
set -eu

object=$1 testing=$2
if ! command -v db_bench >/dev/null; then
	echo "db_bench: skipped: it is not installed (Debian: rocksdb-tools)"
	test -z "${CI:-}"
	exit
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/ringway-db_bench-XXXXXX")
trap 'rm -rf "$dir"' EXIT

# fail REASON: prints the end of the last run's output.
fail() {
	echo "db_bench: FAILED: $1"
	tr '\r' '\n' <"$dir/log" | grep -v '^\.\.\. finished' | tail -n 30
	exit 1
}

# run URI PATTERN BENCHMARKS OPTION...: fails unless a line of the output matches PATTERN.
run() {
	uri=$1 pattern=$2 benchmarks=$3
	shift 3
	LD_PRELOAD=$object timeout 600 db_bench --fs_uri="$uri&log=1" --db="$dir/db" \
		--benchmarks="$benchmarks" --num=20000 --value_size=400 --cache_size=0 \
		--verify_checksum=1 --threads=2 --compression_type=none \
		--target_file_size_base=2097152 --write_buffer_size=1048576 \
		"$@" >"$dir/log" 2>&1 || fail "$uri $benchmarks"
	grep -Eq "$pattern" "$dir/log" || fail "$uri $benchmarks: not in the output: $pattern"
	! grep 'fallback' "$dir/log" | grep -vq '; 0 fallbacks' ||
		fail "$uri $benchmarks: reads fell back to RocksDB's file"
}

direct="--use_direct_reads --use_direct_io_for_flush_and_compaction"
read="--use_existing_db --use_existing_keys=0"
batches='ringway: .* [1-9][0-9]* batches'
for backend in uring kaio threads; do
	uri="ringway://?backend=$backend"
	for io in "$direct" ""; do
		rm -rf "$dir/db"
		run "$uri" 'compact +:' fillrandom,compact $io
		# Reads 2 * 6400 random keys, of which some 63 % are in the database.
		run "$uri" "$batches" multireadrandom $read $io \
			--multiread_batched --batch_size=32 --reads=6400
		run "$uri" '\([1-9][0-9]* of 3000 found\)' readrandom $read $io --reads=3000
		run "$uri" 'ringway: .* [1-9][0-9]* asynchronous' seekrandom $read $io \
			--reads=200 --seek_nexts=300 --async_io
		run "$uri" 'readseq +:' readseq,readreverse $read $io --async_io
	done
	object=$testing
	run "$uri&faults=seed=7,short=300,retryable=100,reorder=500" "$batches" \
		multireadrandom,seekrandom $read $direct \
		--multiread_batched --batch_size=32 --reads=3200 --async_io --seek_nexts=100
	object=$1
	echo "db_bench/$backend: passed"
done

# rejects URI MESSAGE: db_bench must fail and print the message.
rejects() {
	! LD_PRELOAD=$object db_bench --fs_uri="$1" --db="$dir/db" --benchmarks=readrandom $read \
		>"$dir/log" 2>&1 || fail "$1 was accepted"
	grep -q "$2" "$dir/log" || fail "$1: not in the output: $2"
}
rejects 'ringway://?depth=3' 'unknown parameter depth'
rejects 'ringway://?faults=short=500' 'built for tests'
echo "db_bench/uri: passed"
