#!/bin/sh
# db_bench of RocksDB itself, never compiled for us, with the shared object preloaded: fills, compacts and reads a small database on each
# backend, with checksums verified, and fails if it does, or if nothing went through a queue.
#
#	tests/db_bench.sh libringway_rocksdb.so testing/libringway_rocksdb.so
#
# The second is built for tests, and injects faults. The first has none, and says so.
set -eu

object=$1 testing=$2
if ! command -v db_bench >/dev/null; then
	echo "db_bench: skipped: it is not installed (Debian: rocksdb-tools)"
	test -z "${CI:-}"
	exit
fi
dir=$(mktemp -d "${TMPDIR:-/tmp}/ringway-db_bench-XXXXXX")
trap 'rm -rf "$dir"' EXIT

# What a run wrote, if it failed or did not do its work.
fail() {
	echo "db_bench: FAILED: $1"
	tr '\r' '\n' <"$dir/log" | grep -v '^\.\.\. finished' | tail -n 30
	exit 1
}

# run URI PATTERN BENCHMARKS OPTION...: the pattern is to be found in what it says.
run() {
	uri=$1 pattern=$2 benchmarks=$3
	shift 3
	LD_PRELOAD=$object timeout 100 db_bench --fs_uri="$uri&log=1" --db="$dir/db" --benchmarks="$benchmarks" --num=20000 --value_size=400 \
		--cache_size=0 --verify_checksum=1 --threads=2 --compression_type=none --target_file_size_base=2097152 --write_buffer_size=1048576 \
		"$@" >"$dir/log" 2>&1 || fail "$uri $benchmarks"
	grep -Eq "$pattern" "$dir/log" || fail "$uri $benchmarks: not in its output: $pattern"
	! grep -q 'without a queue' "$dir/log" || grep -q ' 0 times without a queue' "$dir/log" || fail "$uri $benchmarks: without a queue"
}

direct="--use_direct_reads --use_direct_io_for_flush_and_compaction"
read="--use_existing_db --use_existing_keys=0"
for backend in uring kaio threads; do
	uri="ringway://?backend=$backend"
	for io in "$direct" ""; do
		rm -rf "$dir/db"
		run "$uri" 'compact +:' fillrandom,compact $io
		# All of 2 * 6400 keys are looked for; some 63 % of random ones were filled in.
		run "$uri" 'ringway: .* [1-9][0-9]* batches' multireadrandom $read $io --multiread_batched --batch_size=32 --reads=6400
		run "$uri" '\([1-9][0-9]* of 3000 found\)' readrandom $read $io --reads=3000
		run "$uri" 'ringway: .* [1-9][0-9]* asynchronous' seekrandom $read $io --reads=200 --seek_nexts=300 --async_io
		run "$uri" 'readseq +:' readseq,readreverse $read $io --async_io
	done
	object=$testing
	run "$uri&faults=seed=7,short=300,retryable=100,reorder=500" 'ringway: .* [1-9][0-9]* batches' multireadrandom,seekrandom $read $direct \
		--multiread_batched --batch_size=32 --reads=3200 --async_io --seek_nexts=100
	object=$1
	echo "db_bench/$backend: passed"
done

# What is wrong in a URI is said, and ends it.
if LD_PRELOAD=$object db_bench --fs_uri='ringway://?depth=3' --db="$dir/db" --benchmarks=readrandom $read >"$dir/log" 2>&1; then
	fail "a URI with an unknown parameter was taken"
fi
grep -q 'there is no parameter depth' "$dir/log" || fail "an unknown parameter is not named"
if LD_PRELOAD=$object db_bench --fs_uri='ringway://?faults=short=500' --db="$dir/db" --benchmarks=readrandom $read >"$dir/log" 2>&1; then
	fail "faults were taken by an object that is not built for tests"
fi
grep -q 'built for tests' "$dir/log" || fail "nothing says that only an object built for tests injects faults"
echo "db_bench/uri: passed"
