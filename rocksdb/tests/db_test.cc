// SPDX-License-Identifier: MIT OR Apache-2.0
// Tests of whole databases: one through ringway and one without are filled alike, and every value
// is compared, read with Get, MultiGet and iterators.
#include <algorithm>
#include <atomic>
#include <map>
#include <numeric>
#include <thread>

#include "rocksdb/cache.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "rocksdb/table.h"
#include "test.h"

namespace {

using rocksdb::DB;
using rocksdb::Env;
using rocksdb::FileSystem;
using rocksdb::Iterator;
using rocksdb::Options;
using rocksdb::PinnableSlice;
using rocksdb::ReadOptions;
using rocksdb::Slice;
using rocksdb::Status;
using test::Directory;

constexpr size_t kKeys = 8000;
constexpr size_t kBatch = 32;

std::string Key(uint64_t number)
{
	char text[24];

	snprintf(text, sizeof text, "key%08llu", static_cast<unsigned long long>(number));
	return text;
}

std::string Value(uint64_t number, uint64_t version)
{
	test::Random random(number * 1000 + version);
	std::string value;

	for (size_t length = 200 + random.Below(400); value.size() < length;)
		value += static_cast<char>(random.Next());
	return value;
}

// How a database is stored and opened.
struct Layout {
	bool direct = true;
	bool blobs = false;
	size_t cache = 0;
};

Options MakeOptions(Env* env, const Layout& layout)
{
	Options options;
	rocksdb::BlockBasedTableOptions table;

	options.create_if_missing = true;
	options.env = env;
	options.use_direct_reads = layout.direct;
	options.use_direct_io_for_flush_and_compaction = layout.direct;
	options.target_file_size_base = 1 << 20; // several files for each level
	options.max_bytes_for_level_base = 2 << 20;
	options.compression = rocksdb::kNoCompression;
	options.disable_auto_compactions = true; // so that both databases have the same files
	options.compaction_readahead_size = 1 << 20;
	options.paranoid_checks = true;
	options.enable_blob_files = layout.blobs;
	options.min_blob_size = 400;
	if (layout.cache == 0)
		table.no_block_cache = true;
	else
		table.block_cache = rocksdb::NewLRUCache(layout.cache);
	options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
	return options;
}

struct Database {
	std::unique_ptr<Env> env;
	std::unique_ptr<DB> db;

	Database(const std::shared_ptr<FileSystem>& fs, const std::string& path,
	         const Layout& layout, bool read_only = false)
	    : env(rocksdb::NewCompositeEnv(fs))
	{
		DB* opened = nullptr;
		const Options options = MakeOptions(env.get(), layout);
		const Status status = read_only ? DB::OpenForReadOnly(options, path, &opened)
		                                : DB::Open(options, path, &opened);

		if (!status.ok() && layout.direct && status.IsInvalidArgument())
			throw test::Skip(
			    "no direct I/O in the directory for temporary files (TMPDIR): " +
			    status.ToString());
		CHECK_OK(status);
		db.reset(opened);
	}
};

// Writes most keys to a lower level, then overwrites or deletes some in files of level 0. Every
// seventh key is absent.
void Fill(DB* db)
{
	const rocksdb::WriteOptions write;

	for (uint64_t number = 0; number < kKeys; number++)
		if (number % 7 != 0)
			CHECK_OK(db->Put(write, Key(number), Value(number, 0)));
	CHECK_OK(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
	for (uint64_t version = 1; version <= 3; version++) {
		for (uint64_t number = version; number < kKeys; number += 11 * version)
			CHECK_OK(number % 5 == 0
			             ? db->Delete(write, Key(number))
				     : db->Put(write, Key(number), Value(number, version)));
		CHECK_OK(db->Flush(rocksdb::FlushOptions()));
	}
}

std::unique_ptr<Iterator> NewIterator(DB* db, bool async)
{
	ReadOptions options;

	options.verify_checksums = true;
	options.async_io = async;
	options.adaptive_readahead = async;
	return std::unique_ptr<Iterator>(db->NewIterator(options));
}

// The contents of a database.
using Model = std::map<std::string, std::string>;

Model ReadAll(DB* db)
{
	Model model;
	std::unique_ptr<Iterator> iterator = NewIterator(db, false);

	for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next())
		model[iterator->key().ToString()] = iterator->value().ToString();
	CHECK_OK(iterator->status());
	CHECK(model.size() > kKeys / 2 && model.size() < kKeys);
	return model;
}

void CheckGet(DB* db, const Model& model, uint64_t step)
{
	ReadOptions options;
	std::string value;

	for (uint64_t number = 0; number < kKeys; number += step) {
		const Status status = db->Get(options, Key(number), &value);
		const auto known = model.find(Key(number));

		if (known == model.end()) {
			CHECK(status.IsNotFound());
			continue;
		}
		CHECK_OK(status);
		CHECK(value == known->second);
	}
}

struct Counts {
	size_t good = 0;
	size_t bad = 0;
};

// Reads `numbers` in batches and checks each value. With `errors`, a key may have an IOError
// instead.
Counts CheckMultiGet(DB* db, const Model& model, const std::vector<uint64_t>& numbers, bool async,
                     bool errors)
{
	ReadOptions options;
	Counts counts;

	options.verify_checksums = true;
	options.async_io = async;
	for (size_t at = 0; at < numbers.size(); at += kBatch) {
		const size_t count = std::min(kBatch, numbers.size() - at);
		std::vector<std::string> keys;
		std::vector<Slice> slices;
		std::vector<PinnableSlice> values(count);
		std::vector<Status> statuses(count);

		for (size_t i = 0; i < count; i++)
			keys.push_back(Key(numbers[at + i]));
		for (const std::string& key : keys)
			slices.emplace_back(key);
		db->MultiGet(options, db->DefaultColumnFamily(), count, slices.data(),
		             values.data(), statuses.data());
		for (size_t i = 0; i < count; i++) {
			const auto known = model.find(keys[i]);

			if (errors && statuses[i].IsIOError()) {
				counts.bad++;
				continue;
			}
			if (known == model.end()) {
				CHECK(statuses[i].IsNotFound());
				continue;
			}
			CHECK_OK(statuses[i]);
			CHECK(values[i] == Slice(known->second));
			counts.good++;
		}
	}
	return counts;
}

std::vector<uint64_t> InOrder()
{
	std::vector<uint64_t> numbers(kKeys);

	std::iota(numbers.begin(), numbers.end(), 0);
	return numbers;
}

std::vector<uint64_t> Shuffled(uint64_t seed, size_t count)
{
	test::Random random(seed);
	std::vector<uint64_t> numbers;

	for (size_t i = 0; i < count; i++)
		numbers.push_back(random.Below(kKeys));
	return numbers;
}

// Walks over all keys, from the first or from the last.
void CheckWalk(DB* db, const Model& model, bool async, bool back)
{
	std::unique_ptr<Iterator> iterator = NewIterator(db, async);
	Model seen;

	back ? iterator->SeekToLast() : iterator->SeekToFirst();
	for (; iterator->Valid(); back ? iterator->Prev() : iterator->Next()) {
		const std::string key = iterator->key().ToString();

		CHECK(seen.empty() ||
		      (back ? key < seen.begin()->first : key > seen.rbegin()->first));
		seen[key] = iterator->value().ToString();
	}
	CHECK_OK(iterator->status());
	CHECK(seen == model);
}

// Seeks to random keys and walks on, forwards or backwards, far enough to start reading ahead.
void CheckSeeks(DB* db, const Model& model, bool async, uint64_t seed, size_t count)
{
	std::unique_ptr<Iterator> iterator = NewIterator(db, async);
	test::Random random(seed);

	for (size_t i = 0; i < count; i++) {
		const std::string key = Key(random.Below(kKeys + 10));
		const size_t walk = random.Below(i % 10 == 0 ? 2000 : 30);
		const bool back = random.Below(4) == 0;
		auto known = model.lower_bound(key);

		iterator->Seek(key);
		for (size_t step = 0; step < walk && iterator->Valid(); step++) {
			CHECK(known != model.end());
			CHECK(iterator->key() == Slice(known->first));
			CHECK(iterator->value() == Slice(known->second));
			if (back && known == model.begin())
				break;
			if (back) {
				iterator->Prev();
				--known;
			} else {
				iterator->Next();
				++known;
			}
		}
		CHECK_OK(iterator->status());
		if (!iterator->Valid())
			CHECK(known == model.end());
	}
}

// The contents of a database filled without ringway, which every test compares with.
const Model& Reference()
{
	static const Model model = [] {
		const Directory directory;
		Database reference(FileSystem::Default(), directory / "reference", Layout());

		Fill(reference.db.get());
		return ReadAll(reference.db.get());
	}();
	return model;
}

// A database filled through ringway, and the contents it must have.
struct Fixture {
	const Model& model = Reference();
	Directory directory;
	const std::string path = directory / "ours";

	Fixture(const std::shared_ptr<FileSystem>& fs, const Layout& layout)
	{
		Fill(Database(fs, path, layout).db.get());
	}
};

void CheckEverything(const std::string& backend, const std::string& faults, const Layout& layout)
{
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, faults));
	const Fixture fixture(fs, layout);
	Database ours(fs, fixture.path, layout);
	DB* db = ours.db.get();

	CheckGet(db, fixture.model, 13);
	for (const bool async : {false, true}) {
		CheckMultiGet(db, fixture.model, InOrder(), async, false);
		CheckMultiGet(db, fixture.model, Shuffled(2, 4000), async, false);
		CheckWalk(db, fixture.model, async, false);
		CheckWalk(db, fixture.model, async, true);
		CheckSeeks(db, fixture.model, async, 3, 60);
	}
	CHECK_OK(db->VerifyChecksum());
	CHECK_OK(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
	CheckWalk(db, fixture.model, true, false);
	CheckMultiGet(db, fixture.model, Shuffled(4, 4000), false, false);

	const ringway::FileSystemStats stats = test::Stats(fs);
	CHECK(stats.batches > 100);
	CHECK(stats.batch_reads > stats.batches);
	CHECK(stats.async_reads > 10);
	CHECK_EQUAL(stats.fallbacks, uint64_t{0});
}

const char kShortReads[] = "seed=11,short=400,retryable=100,delay=300/8,reorder=500";

TEST_EACH_BACKEND(db_direct_buffered_and_with_blobs)
{
	Layout layout;

	CheckEverything(backend, "", layout);
	CheckEverything(backend, kShortReads, layout);
	layout.blobs = true;
	CheckEverything(backend, "", layout);
	layout.direct = false;
	CheckEverything(backend, "", layout);
}

TEST_EACH_BACKEND(db_errors_affect_only_their_own_keys)
{
	const Fixture fixture(test::NewFileSystem(test::Options(backend)), Layout());
	const std::shared_ptr<FileSystem> fs =
	    test::NewFileSystem(test::Options(backend, "seed=12,errors=20"));
	Database ours(fs, fixture.path, Layout(), true);
	DB* db = ours.db.get();

	const Counts counts = CheckMultiGet(db, fixture.model, Shuffled(12, 6000), false, true);
	CHECK(counts.bad > 0);
	// One read may serve several keys, and then its error affects all of them.
	CHECK(counts.good > 5 * counts.bad);

	// Keys that failed can be read again.
	std::vector<uint64_t> missing = Shuffled(13, 2000);
	std::vector<uint64_t> again;
	for (int round = 0; round < 50 && !missing.empty(); round++) {
		for (uint64_t number : missing) {
			const Counts one = CheckMultiGet(
			    db, fixture.model, {number, (number + kKeys / 2) % kKeys}, false, true);
			if (one.bad > 0)
				again.push_back(number);
		}
		missing.swap(again);
		again.clear();
	}
	CHECK(missing.empty());

	// A failed read ahead is repeated, or the iterator has an error. It never returns wrong
	// data.
	for (uint64_t seed = 0; seed < 10; seed++) {
		std::unique_ptr<Iterator> iterator = NewIterator(db, true);
		auto known = fixture.model.begin();

		for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next(), ++known) {
			CHECK(known != fixture.model.end());
			CHECK(iterator->key() == Slice(known->first));
			CHECK(iterator->value() == Slice(known->second));
		}
		CHECK(iterator->status().ok() ? known == fixture.model.end()
		                              : iterator->status().IsIOError());
	}
}

// What one of the threads does: five read a database that is open, three open and close others.
void ReadOnThread(size_t i, const std::shared_ptr<FileSystem>& fs, const Fixture& fixture, DB* db,
                  std::atomic<bool>& stop)
{
	Layout layout;

	if (i < 5) {
		for (uint64_t seed = i * 10; seed < i * 10 + 2; seed++) {
			CheckMultiGet(db, fixture.model, Shuffled(seed, 1500), i % 2 == 0, false);
			CheckSeeks(db, fixture.model, true, seed, 15);
		}
		if (i == 0)
			stop = true;
		return;
	}
	layout.direct = i != 5;
	layout.cache = i == 6 ? 1 << 20 : 0;
	do {
		Database other(fs, fixture.path, layout, true);

		CheckMultiGet(other.db.get(), fixture.model, Shuffled(i, 200), false, false);
		CheckSeeks(other.db.get(), fixture.model, true, i, 3);
	} while (!stop);
}

TEST_EACH_BACKEND(db_many_threads_while_others_open_and_close)
{
	for (const char* faults : {"", kShortReads}) {
		const std::shared_ptr<FileSystem> fs =
		    test::NewFileSystem(test::Options(backend, faults));
		const Fixture fixture(fs, Layout());
		const size_t before = test::OpenDescriptors();

		{
			Database ours(fs, fixture.path, Layout(), true);
			std::vector<std::thread> threads;
			std::atomic<bool> stop{false};
			std::vector<std::string> failures(8);

			for (size_t i = 0; i < failures.size(); i++)
				threads.emplace_back([&, i] {
					try {
						ReadOnThread(i, fs, fixture, ours.db.get(), stop);
					} catch (const std::exception& failure) {
						failures[i] = failure.what();
						stop = true;
					}
				});
			for (std::thread& thread : threads)
				thread.join();
			for (const std::string& failure : failures)
				CHECK_EQUAL(failure, std::string());
		}
		CHECK_EQUAL(test::Stats(fs).fallbacks, uint64_t{0});
		// Only the queues stay open, for other threads; no file does.
		CHECK(test::OpenDescriptors() <= before + 3 * test::Stats(fs).queues);
	}
}

} // namespace
