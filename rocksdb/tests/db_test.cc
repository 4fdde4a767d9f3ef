// SPDX-License-Identifier: MIT OR Apache-2.0
// Whole databases: one through ringway and one plain, filled alike, and every value compared in every way that there is to read it.
#include <algorithm>
#include <atomic>
#include <map>
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

// How a database is kept and opened.
struct Shape {
	bool direct = true;
	bool blobs = false;
	size_t cache = 0;
};

Options MakeOptions(Env* env, const Shape& shape)
{
	Options options;
	rocksdb::BlockBasedTableOptions table;

	options.create_if_missing = true;
	options.env = env;
	options.use_direct_reads = shape.direct;
	options.use_direct_io_for_flush_and_compaction = shape.direct;
	options.target_file_size_base = 1 << 20; // several files to a level
	options.max_bytes_for_level_base = 2 << 20;
	options.compression = rocksdb::kNoCompression;
	options.disable_auto_compactions = true; // so that both have the same files
	options.compaction_readahead_size = 1 << 20;
	options.paranoid_checks = true;
	options.enable_blob_files = shape.blobs;
	options.min_blob_size = 400;
	if (shape.cache == 0)
		table.no_block_cache = true;
	else
		table.block_cache = rocksdb::NewLRUCache(shape.cache);
	options.table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
	return options;
}

struct Database {
	std::unique_ptr<Env> env;
	std::unique_ptr<DB> db;

	Database(const std::shared_ptr<FileSystem>& fs, const std::string& path, const Shape& shape, bool read_only = false)
	    : env(rocksdb::NewCompositeEnv(fs))
	{
		DB* opened = nullptr;
		const Options options = MakeOptions(env.get(), shape);
		const Status status =
		    read_only ? DB::OpenForReadOnly(options, path, &opened) : DB::Open(options, path, &opened);

		if (!status.ok() && shape.direct && status.IsInvalidArgument())
			throw test::Skip("no direct I/O in the directory for temporary files (TMPDIR): " + status.ToString());
		CHECK_OK(status);
		db.reset(opened);
	}
};

// Most keys in a lower level, some of them again in files of level 0, some deleted, every seventh never there.
void Fill(DB* db)
{
	const rocksdb::WriteOptions write;

	for (uint64_t number = 0; number < kKeys; number++)
		if (number % 7 != 0)
			CHECK_OK(db->Put(write, Key(number), Value(number, 0)));
	CHECK_OK(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
	for (uint64_t version = 1; version <= 3; version++) {
		for (uint64_t number = version; number < kKeys; number += 11 * version)
			CHECK_OK(number % 5 == 0 ? db->Delete(write, Key(number)) : db->Put(write, Key(number), Value(number, version)));
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

// All that is in a database.
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

// Reads `numbers` in batches. A key is right, or, where errors are injected, it has an error.
Counts CheckMultiGet(DB* db, const Model& model, const std::vector<uint64_t>& numbers, bool async, bool errors)
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
		db->MultiGet(options, db->DefaultColumnFamily(), count, slices.data(), values.data(), statuses.data());
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
	std::vector<uint64_t> numbers;

	for (uint64_t number = 0; number < kKeys; number++)
		numbers.push_back(number);
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

void CheckForward(DB* db, const Model& model, bool async)
{
	std::unique_ptr<Iterator> iterator = NewIterator(db, async);
	auto known = model.begin();

	for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next(), ++known) {
		CHECK(known != model.end());
		CHECK(iterator->key() == Slice(known->first));
		CHECK(iterator->value() == Slice(known->second));
	}
	CHECK_OK(iterator->status());
	CHECK(known == model.end());
}

void CheckBackward(DB* db, const Model& model, bool async)
{
	std::unique_ptr<Iterator> iterator = NewIterator(db, async);
	auto known = model.rbegin();

	for (iterator->SeekToLast(); iterator->Valid(); iterator->Prev(), ++known) {
		CHECK(known != model.rend());
		CHECK(iterator->key() == Slice(known->first));
		CHECK(iterator->value() == Slice(known->second));
	}
	CHECK_OK(iterator->status());
	CHECK(known == model.rend());
}

// Seeks here and there, and walks on for a while: some way that reading ahead begins for, and turns back on.
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

// What a plain database has, filled as ours is: the model that every test compares with.
const Model& Plain()
{
	static const Model model = [] {
		const Directory directory;
		Database plain(FileSystem::Default(), directory / "plain", Shape());

		Fill(plain.db.get());
		return ReadAll(plain.db.get());
	}();
	return model;
}

// A database filled through ringway, and the plain one's contents.
struct Pair {
	const Model& model = Plain();
	Directory directory;
	const std::string path = directory / "ours";

	Pair(const std::shared_ptr<FileSystem>& fs, const Shape& shape) { Fill(Database(fs, path, shape).db.get()); }
};

void CheckEverything(const std::string& backend, const std::string& faults, const Shape& shape)
{
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, faults));
	const Pair pair(fs, shape);
	Database ours(fs, pair.path, shape);
	DB* db = ours.db.get();

	CheckGet(db, pair.model, 13);
	for (const bool async : {false, true}) {
		CheckMultiGet(db, pair.model, InOrder(), async, false);
		CheckMultiGet(db, pair.model, Shuffled(2, 4000), async, false);
		CheckForward(db, pair.model, async);
		CheckBackward(db, pair.model, async);
		CheckSeeks(db, pair.model, async, 3, 60);
	}
	CHECK_OK(db->VerifyChecksum());
	CHECK_OK(db->CompactRange(rocksdb::CompactRangeOptions(), nullptr, nullptr));
	CheckForward(db, pair.model, true);
	CheckMultiGet(db, pair.model, Shuffled(4, 4000), false, false);

	const ringway::FileSystemStats stats = test::Stats(fs);
	CHECK(stats.batches > 100);
	CHECK(stats.batch_reads > stats.batches);
	CHECK(stats.async_reads > 10);
	CHECK_EQUAL(stats.without_queue, uint64_t{0});
}

const char kShort[] = "seed=11,short=400,retryable=100,delay=300/8,reorder=500";

TEST_EACH_BACKEND(db_direct)
{
	CheckEverything(backend, "", Shape());
}

TEST_EACH_BACKEND(db_buffered)
{
	Shape shape;

	shape.direct = false;
	CheckEverything(backend, "", shape);
}

TEST_EACH_BACKEND(db_blobs)
{
	Shape shape;

	shape.blobs = true;
	CheckEverything(backend, "", shape);
}

TEST_EACH_BACKEND(db_short_reads)
{
	CheckEverything(backend, kShort, Shape());
}

TEST_EACH_BACKEND(db_errors_reach_only_their_own_keys)
{
	const Pair pair(test::NewFileSystem(test::Options(backend)), Shape());
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, "seed=12,errors=20"));
	Database ours(fs, pair.path, Shape(), true);
	DB* db = ours.db.get();

	const Counts counts = CheckMultiGet(db, pair.model, Shuffled(12, 6000), false, true);
	CHECK(counts.bad > 0);
	CHECK(counts.good > 5 * counts.bad); // a read may serve several keys, and an error then has several

	// What failed is there when it is asked for again.
	std::vector<uint64_t> missing = Shuffled(13, 2000);
	std::vector<uint64_t> again;
	for (int round = 0; round < 50 && !missing.empty(); round++) {
		for (uint64_t number : missing) {
			const Counts one = CheckMultiGet(db, pair.model, {number, (number + kKeys / 2) % kKeys}, false, true);
			if (one.bad > 0)
				again.push_back(number);
		}
		missing.swap(again);
		again.clear();
	}
	CHECK(missing.empty());

	// Reading ahead that fails is read again, or the iterator says so; it never says something else.
	for (uint64_t seed = 0; seed < 10; seed++) {
		std::unique_ptr<Iterator> iterator = NewIterator(db, true);
		auto known = pair.model.begin();

		for (iterator->SeekToFirst(); iterator->Valid(); iterator->Next(), ++known) {
			CHECK(known != pair.model.end());
			CHECK(iterator->key() == Slice(known->first));
			CHECK(iterator->value() == Slice(known->second));
		}
		CHECK(iterator->status().ok() ? known == pair.model.end() : iterator->status().IsIOError());
	}
}

TEST_EACH_BACKEND(db_many_threads_while_others_open_and_close)
{
	for (const char* faults : {"", kShort}) {
		const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, faults));
		const Pair pair(fs, Shape());
		const size_t before = test::OpenDescriptors();

		{
			Database ours(fs, pair.path, Shape(), true);
			std::vector<std::thread> threads;
			std::atomic<bool> stop{false};
			std::vector<std::string> failures(8);

			for (size_t i = 0; i < failures.size(); i++)
				threads.emplace_back([&, i] {
					try {
						if (i < 5) {
							for (uint64_t round = 0; round < 2; round++) {
								CheckMultiGet(ours.db.get(), pair.model, Shuffled(i * 10 + round, 1500), i % 2 == 0, false);
								CheckSeeks(ours.db.get(), pair.model, true, i * 10 + round, 15);
							}
							if (i == 0)
								stop = true;
						} else {
							Shape shape;

							shape.direct = i != 5;
							shape.cache = i == 6 ? 1 << 20 : 0;
							do {
								Database other(fs, pair.path, shape, true);

								CheckMultiGet(other.db.get(), pair.model, Shuffled(i, 200), false, false);
								CheckSeeks(other.db.get(), pair.model, true, i, 3);
							} while (!stop);
						}
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
		CHECK_EQUAL(test::Stats(fs).without_queue, uint64_t{0});
		// What is left open is the queues, which wait for other threads; not a file.
		CHECK(test::OpenDescriptors() <= before + 3 * test::Stats(fs).queues);
	}
}

// An iterator that reads ahead in one thread goes on in another, and ends in a third.
TEST_EACH_BACKEND(db_iterators_move_between_threads)
{
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	const Pair pair(fs, Shape());
	Database ours(fs, pair.path, Shape(), true);

	for (int round = 0; round < 5; round++) {
		std::unique_ptr<Iterator> iterator = NewIterator(ours.db.get(), true);
		auto known = pair.model.begin();
		std::string failure;

		iterator->SeekToFirst();
		while (failure.empty() && iterator->Valid() && std::distance(pair.model.begin(), known) < 5000)
			std::thread([&] {
				try {
					for (int step = 0; step < 1000 && iterator->Valid(); step++, iterator->Next(), ++known) {
						CHECK(known != pair.model.end());
						CHECK(iterator->key() == Slice(known->first));
						CHECK(iterator->value() == Slice(known->second));
					}
				} catch (const std::exception& error) {
					failure = error.what();
				}
			}).join();
		CHECK_EQUAL(failure, std::string());
		CHECK_OK(iterator->status());
		std::thread([&] { iterator.reset(); }).join();
	}
	CHECK(test::Stats(fs).async_reads > 0);
}

} // namespace
