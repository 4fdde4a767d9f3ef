// SPDX-License-Identifier: MIT OR Apache-2.0
// A program that links libringway_rocksdb, fills a database and reads it with MultiGet.
// tests/install.sh builds it against an installed copy.
#include <ringway_rocksdb.h>
#include <rocksdb/db.h>
#include <rocksdb/env.h>

#include <cstdio>
#include <string>
#include <vector>

namespace {

int Fail(const char* what, const rocksdb::Status& status)
{
	std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
	return 1;
}

} // namespace

int main(int, char** argv)
{
	std::shared_ptr<rocksdb::FileSystem> fs;
	rocksdb::Status status = ringway::NewFileSystem({}, rocksdb::FileSystem::Default(), &fs);
	if (!status.ok())
		return Fail("file system", status);
	const std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);

	rocksdb::Options options;
	rocksdb::DB* opened = nullptr;
	options.create_if_missing = true;
	options.env = env.get();
	status = rocksdb::DB::Open(options, argv[1], &opened);
	if (!status.ok())
		return Fail("open", status);
	const std::unique_ptr<rocksdb::DB> db(opened);

	std::vector<std::string> keys;
	for (int i = 1000; i < 5000; i++) {
		const std::string key = "key" + std::to_string(i);

		status = db->Put(rocksdb::WriteOptions(), key, key + std::string(500, 'v'));
		if (!status.ok())
			return Fail("put", status);
		if (i % 50 == 0) // far enough apart that each key is a separate read
			keys.push_back(key);
	}
	status = db->Flush(rocksdb::FlushOptions());
	if (!status.ok())
		return Fail("flush", status);

	std::vector<rocksdb::Slice> slices(keys.begin(), keys.end());
	std::vector<rocksdb::PinnableSlice> values(keys.size());
	std::vector<rocksdb::Status> statuses(keys.size());
	db->MultiGet(rocksdb::ReadOptions(), db->DefaultColumnFamily(), keys.size(), slices.data(),
	             values.data(), statuses.data());
	for (size_t i = 0; i < keys.size(); i++) {
		if (!statuses[i].ok())
			return Fail("get", statuses[i]);
		if (values[i] != keys[i] + std::string(500, 'v'))
			return Fail("get", rocksdb::Status::Corruption(keys[i]));
	}

	ringway::FileSystemStats stats;
	if (!ringway::GetStats(*fs, &stats) || stats.batches == 0)
		return Fail("stats",
		            rocksdb::Status::NotFound("no batch was submitted to ringway"));
	return 0;
}
