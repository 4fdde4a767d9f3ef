// SPDX-License-Identifier: MIT OR Apache-2.0
// Makes "ringway://" known to RocksDB when the shared object is loaded, so that a program which was never compiled for it can be told to
// use it: LD_PRELOAD and the URI of a file system suffice.
#include <memory>
#include <string>

#include "file_system.h"
#include "ringway_rocksdb.h"
#include "rocksdb/file_system.h"
#include "rocksdb/utilities/object_registry.h"
#include "uri.h"

namespace ringway {

namespace {

rocksdb::FileSystem* MakeFromUri(const std::string& uri, std::unique_ptr<rocksdb::FileSystem>* guard, std::string* error)
{
	FileSystemOptions options;
	rocksdb::Status status = ParseUri(uri, &options);

	if (status.ok())
		status = Make(options, rocksdb::FileSystem::Default(), guard);
	if (!status.ok())
		*error = status.getState(); // RocksDB puts the code before it
	return guard->get();
}

// Two copies in one process (one linked, one preloaded) register two factories, of which RocksDB takes one: they share nothing.
__attribute__((constructor)) void Register()
{
	rocksdb::ObjectLibrary::Default()->AddFactory<rocksdb::FileSystem>(
	    rocksdb::ObjectLibrary::PatternEntry(kName, false).AddSeparator(kSeparator, false), MakeFromUri);
}

} // namespace

} // namespace ringway
