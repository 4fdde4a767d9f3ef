// SPDX-License-Identifier: MIT OR Apache-2.0
// "ringway://" as RocksDB finds it, and what is said to a URI that is wrong. Run again with the shared object preloaded beside the copy that
// is linked in here, it shows that two copies get along.
#include "rocksdb/convenience.h"
#include "rocksdb/db.h"
#include "rocksdb/env.h"
#include "test.h"

namespace {

using rocksdb::ConfigOptions;
using rocksdb::FileSystem;
using rocksdb::Status;

TEST_ONCE(uri_parameters)
{
	ringway::FileSystemOptions options;

	CHECK_OK(ringway::ParseUri("ringway://", &options));
	CHECK(options.backend.empty() && options.entries == 0 && !options.log);
	CHECK_OK(ringway::ParseUri("ringway://?", &options));
	CHECK_OK(ringway::ParseUri("ringway://?backend=kaio&entries=16&in_flight=128&threads=3&faults=seed=7,short=500&log=0", &options));
	CHECK_EQUAL(options.backend, std::string("kaio"));
	CHECK_EQUAL(options.entries, 16u);
	CHECK_EQUAL(options.in_flight, 128u);
	CHECK_EQUAL(options.threads, 3u);
	CHECK_EQUAL(options.faults, std::string("seed=7,short=500"));
	CHECK(!options.log);
	CHECK_OK(ringway::ParseUri("ringway://?log=1", &options));
	CHECK(options.log && options.backend.empty());

	for (const char* wrong :
	     {"", "ringway:", "ringway://here", "ringway:///?log=1", "ringway://?depth=3", "ringway://?backend", "ringway://?entries=",
	      "ringway://?entries=many", "ringway://?entries=-1", "ringway://?entries=4294967296", "ringway://?entries=99999999999999999999999",
	      "ringway://?log=yes", "ringway://?log=1&&log=1", "posix://"})
		if (!ringway::ParseUri(wrong, &options).IsInvalidArgument())
			test::Fail(__FILE__, __LINE__, std::string("taken for good: ") + wrong);
}

TEST_EACH_BACKEND(uri_makes_a_file_system)
{
	std::shared_ptr<FileSystem> fs;

	CHECK_OK(FileSystem::CreateFromString(ConfigOptions(), "ringway://?backend=" + backend + "&entries=16&faults=seed=1,short=10", &fs));
	CHECK_EQUAL(std::string(fs->Name()), std::string("RingwayFileSystem"));
	CHECK_EQUAL(test::Stats(fs).queues, uint64_t{1});
	CHECK(ringway::Explain(*fs).find(backend) != std::string::npos);
}

TEST_ONCE(uri_opens_a_database)
{
	const test::Directory directory;
	rocksdb::Env* env = nullptr;
	std::shared_ptr<rocksdb::Env> guard;

	CHECK_OK(rocksdb::Env::CreateFromUri(ConfigOptions(), "", "ringway://?backend=threads", &env, &guard));
	rocksdb::Options options;
	rocksdb::DB* db = nullptr;
	std::string value;

	options.create_if_missing = true;
	options.env = env;
	CHECK_OK(rocksdb::DB::Open(options, directory / "db", &db));
	CHECK_OK(db->Put(rocksdb::WriteOptions(), "key", "value"));
	CHECK_OK(db->Flush(rocksdb::FlushOptions()));
	CHECK_OK(db->Get(rocksdb::ReadOptions(), "key", &value));
	CHECK_EQUAL(value, std::string("value"));
	delete db;
}

TEST_ONCE(uri_that_is_wrong_is_told)
{
	std::shared_ptr<FileSystem> fs;

	for (const char* wrong : {"ringway://?depth=3", "ringway://?backend=carrier_pigeon", "ringway://?backend=null",
	                          "ringway://?entries=100000", "ringway://?faults=rain=1"}) {
		const Status status = FileSystem::CreateFromString(ConfigOptions(), wrong, &fs);

		if (!status.IsInvalidArgument())
			test::Fail(__FILE__, __LINE__, std::string(wrong) + ": " + status.ToString());
		CHECK(status.ToString().find("ringway") != std::string::npos);
	}
	ConfigOptions strict;
	strict.ignore_unsupported_options = false;
	CHECK(FileSystem::CreateFromString(strict, "ringways://", &fs).IsNotSupported()); // RocksDB's own: nobody is asked
}

} // namespace
