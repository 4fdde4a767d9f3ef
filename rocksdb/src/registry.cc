// SPDX-License-Identifier: MIT OR Apache-2.0
// The factories of "ringway://" and the entry points that do not need our C++ header: that of
// RocksDB's plugin build, and the Env for RocksDB's C API.
#include "registry.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "file_system.h"
#include "ringway_rocksdb.h"
#include "rocksdb/c.h"
#include "rocksdb/env.h"
#include "rocksdb/file_system.h"
#include "uri.h"

namespace ringway {

namespace {

using rocksdb::Env;
using rocksdb::ObjectLibrary;
using rocksdb::Status;

Status FileSystemFromUri(const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* result)
{
	FileSystemOptions options;
	const Status status = ParseUri(uri, &options);

	return status.ok() ? CreateFileSystem(options, rocksdb::FileSystem::Default(), result)
	                   : status;
}

// The Env of a URI. Options that are parsed from a string, and the C API, hold an Env without
// owning it. So there is one for each URI, and it lives until the process ends.
Status SharedEnv(const std::string& uri, Env** result)
{
	static std::mutex lock;
	// A pointer, so that no destructor runs at exit.
	static auto* const envs = new std::map<std::string, std::unique_ptr<Env>>;
	std::lock_guard<std::mutex> guard(lock);
	std::unique_ptr<Env>& env = (*envs)[uri];

	if (env == nullptr) {
		std::unique_ptr<rocksdb::FileSystem> fs;
		const Status status = FileSystemFromUri(uri, &fs);

		if (!status.ok())
			return status;
		env = rocksdb::NewCompositeEnv(std::move(fs));
	}
	*result = env.get();
	return Status::OK();
}

// RocksDB puts the code of the status in front of the message itself.
void SetMessage(const Status& status, std::string* error)
{
	if (!status.ok())
		*error = status.getState();
}

rocksdb::FileSystem* MakeFileSystem(const std::string& uri,
                                    std::unique_ptr<rocksdb::FileSystem>* guard, std::string* error)
{
	SetMessage(FileSystemFromUri(uri, guard), error);
	return guard->get();
}

Env* MakeEnv(const std::string& uri, std::unique_ptr<Env>*, std::string* error)
{
	Env* env = nullptr;

	SetMessage(SharedEnv(uri, &env), error);
	return env;
}

// An Env for the C API. The layout of rocksdb_env_t is private to RocksDB's c.cc. It begins with
// the Env, followed by a flag that says not to delete that Env. So a handle of the default Env,
// which has the flag set, becomes one of ours when its first member is replaced.
Status NewEnvHandle(const std::string& uri, rocksdb_env_t** result)
{
	Env* env = nullptr;
	const Status status = SharedEnv(uri, &env);
	if (!status.ok())
		return status;

	rocksdb_env_t* const handle = rocksdb_create_default_env();
	Env* first = nullptr;
	std::memcpy(&first, handle, sizeof first);
	if (first != Env::Default()) {
		rocksdb_env_destroy(handle);
		return Status::NotSupported(
		    "ringway", "rocksdb_env_t of this RocksDB version has an unknown layout");
	}
	std::memcpy(static_cast<void*>(handle), &env, sizeof env);
	*result = handle;
	return Status::OK();
}

} // namespace

int RegisterFactories(ObjectLibrary& library)
{
	const auto entry =
	    ObjectLibrary::PatternEntry(kScheme, false).AddSeparator(kSeparator, false);

	library.AddFactory<rocksdb::FileSystem>(entry, MakeFileSystem);
	library.AddFactory<Env>(entry, MakeEnv);
	return 2;
}

} // namespace ringway

rocksdb_env_t* ringway_rocksdb_create_env(const char* uri, char** error)
{
	rocksdb_env_t* result = nullptr;
	const rocksdb::Status status = ringway::NewEnvHandle(uri, &result);

	if (!status.ok()) {
		std::free(*error);
		*error = strdup(status.ToString().c_str());
	}
	return result;
}

// Called by RocksDB when it is built with ROCKSDB_PLUGINS=ringway; see ringway.mk.
extern "C" int ringway_rocksdb_register(rocksdb::ObjectLibrary& library, const std::string&)
{
	return ringway::RegisterFactories(library);
}
