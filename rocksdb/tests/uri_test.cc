// SPDX-License-Identifier: MIT OR Apache-2.0
// Tests of "ringway://": its parameters, the file system and the Env that RocksDB creates from it,
// and the errors of wrong URIs. `make test` runs them a second time with the shared object
// preloaded, to show that a linked and a preloaded copy do not interfere.
#include <cstdlib>
#include <cstring>

#include "rocksdb/c.h"
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
	CHECK_OK(ringway::ParseUri(
	    "ringway://"
	    "?backend=kaio&entries=16&in_flight=128&threads=3&faults=seed=7,short=500&log=0",
	    &options));
	CHECK_EQUAL(options.backend, std::string("kaio"));
	CHECK_EQUAL(options.entries, 16u);
	CHECK_EQUAL(options.in_flight, 128u);
	CHECK_EQUAL(options.threads, 3u);
	CHECK_EQUAL(options.faults, std::string("seed=7,short=500"));
	CHECK(!options.log);
	CHECK_OK(ringway::ParseUri("ringway://?log=1", &options));
	CHECK(options.log && options.backend.empty());

	for (const char* wrong :
	     {"", "ringway:", "ringway://here", "ringway:///?log=1", "ringway://?depth=3",
	      "ringway://?backend", "ringway://?entries=", "ringway://?entries=many",
	      "ringway://?entries=-1", "ringway://?entries=4294967296",
	      "ringway://?entries=99999999999999999999999", "ringway://?log=yes",
	      "ringway://?log=1&&log=1", "posix://"})
		if (!ringway::ParseUri(wrong, &options).IsInvalidArgument())
			test::Fail(__FILE__, __LINE__, std::string("accepted: ") + wrong);
}

TEST_EACH_BACKEND(uri_makes_a_file_system)
{
	std::shared_ptr<FileSystem> fs;

	CHECK_OK(FileSystem::CreateFromString(
	    ConfigOptions(), "ringway://?backend=" + backend + "&entries=16&faults=seed=1,short=10",
	    &fs));
	CHECK_EQUAL(std::string(fs->Name()), std::string("RingwayFileSystem"));
	CHECK_EQUAL(test::Stats(fs).queues, uint64_t{1});
	CHECK(ringway::Explain(*fs).find(backend) != std::string::npos);
}

// Options that are parsed from a string can name the Env. Java has no other way to set ours.
TEST_EACH_BACKEND(uri_names_the_env_of_options)
{
	const test::Directory directory;
	rocksdb::Options options;
	rocksdb::DB* db = nullptr;
	std::string value;
	const std::string uri = "ringway://?entries=8&backend=" + backend;

	CHECK_OK(rocksdb::GetDBOptionsFromString(ConfigOptions(), rocksdb::DBOptions(),
	                                         "create_if_missing=true;env={id=" + uri + "}",
	                                         &options));
	CHECK_EQUAL(std::string(options.env->GetFileSystem()->Name()),
	            std::string("RingwayFileSystem"));
	CHECK(ringway::Explain(*options.env->GetFileSystem()).find(backend) != std::string::npos);
	CHECK_OK(rocksdb::DB::Open(options, directory / "db", &db));
	CHECK_OK(db->Put(rocksdb::WriteOptions(), "key", "value"));
	CHECK_OK(db->Flush(rocksdb::FlushOptions()));
	CHECK_OK(db->Get(rocksdb::ReadOptions(), "key", &value));
	CHECK_EQUAL(value, std::string("value"));
	delete db;

	// The same URI names the same Env, which is not destroyed with the guard.
	rocksdb::Env* env = nullptr;
	{
		std::shared_ptr<rocksdb::Env> guard;

		CHECK_OK(
		    rocksdb::Env::CreateFromUri(ConfigOptions(), "id=" + uri, "", &env, &guard));
		CHECK(guard == nullptr);
	}
	CHECK(env == options.env);
	rocksdb::DBOptions strict;
	CHECK(!rocksdb::GetDBOptionsFromString(ConfigOptions(), rocksdb::DBOptions(),
	                                       "env={id=ringway://?depth=3}", &strict)
	           .ok());
}

TEST_EACH_BACKEND(uri_makes_an_env_for_the_c_api)
{
	const test::Directory directory;
	char* error = nullptr;
	rocksdb_env_t* env =
	    ringway_rocksdb_create_env(("ringway://?backend=" + backend).c_str(), &error);
	rocksdb_options_t* options = rocksdb_options_create();
	size_t length = 0;

	CHECK(env != nullptr && error == nullptr);
	rocksdb_options_set_create_if_missing(options, 1);
	rocksdb_options_set_env(options, env);
	rocksdb_t* db = rocksdb_open(options, (directory / "db").c_str(), &error);
	CHECK(error == nullptr);
	rocksdb_env_destroy(env); // the database still uses the Env that the handle refers to
	rocksdb_options_destroy(options);

	rocksdb_writeoptions_t* write = rocksdb_writeoptions_create();
	rocksdb_put(db, write, "key", 3, "value", 5, &error);
	CHECK(error == nullptr);
	rocksdb_flushoptions_t* flush = rocksdb_flushoptions_create();
	rocksdb_flush(db, flush, &error);
	CHECK(error == nullptr);
	rocksdb_readoptions_t* read = rocksdb_readoptions_create();
	char* value = rocksdb_get(db, read, "key", 3, &length, &error);
	CHECK(error == nullptr && value != nullptr);
	CHECK_EQUAL(std::string(value, length), std::string("value"));
	rocksdb_free(value);
	rocksdb_close(db);
	rocksdb_writeoptions_destroy(write);
	rocksdb_flushoptions_destroy(flush);
	rocksdb_readoptions_destroy(read);

	// An error replaces the message of an earlier one.
	error = strdup("earlier");
	CHECK(ringway_rocksdb_create_env("ringway://?depth=3", &error) == nullptr);
	CHECK(std::string(error).find("unknown parameter depth") != std::string::npos);
	std::free(error);
}

TEST_ONCE(uri_that_is_wrong_is_rejected)
{
	std::shared_ptr<FileSystem> fs;

	for (const char* wrong :
	     {"ringway://?depth=3", "ringway://?backend=carrier_pigeon", "ringway://?backend=null",
	      "ringway://?entries=100000", "ringway://?faults=rain=1"}) {
		const Status status = FileSystem::CreateFromString(ConfigOptions(), wrong, &fs);

		if (!status.IsInvalidArgument())
			test::Fail(__FILE__, __LINE__,
			           std::string(wrong) + ": " + status.ToString());
		CHECK(status.ToString().find("ringway") != std::string::npos);
	}
	ConfigOptions strict;
	strict.ignore_unsupported_options = false;
	// RocksDB's own error: no factory has this name.
	CHECK(FileSystem::CreateFromString(strict, "ringways://", &fs).IsNotSupported());
}

} // namespace
