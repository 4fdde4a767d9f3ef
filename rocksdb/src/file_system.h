// SPDX-License-Identifier: MIT OR Apache-2.0
// FileSystem: RocksDB's own file system, with our own files for random access. Sequential reads,
// writes and everything about directories are passed through.
#ifndef RINGWAY_ROCKSDB_FILE_SYSTEM_H
#define RINGWAY_ROCKSDB_FILE_SYSTEM_H

#include <memory>
#include <string>
#include <vector>

#include "rocksdb/file_system.h"
#include "rocksdb/version.h"
#include "thread_queue.h"

namespace ringway {

class FileSystem : public rocksdb::FileSystemWrapper {
public:
	FileSystem(const std::shared_ptr<rocksdb::FileSystem>& base,
	           std::shared_ptr<Queues> queues);

	static const char* kClassName() { return "RingwayFileSystem"; }
	const char* Name() const override { return kClassName(); }

	rocksdb::IOStatus NewRandomAccessFile(const std::string& path,
	                                      const rocksdb::FileOptions& options,
	                                      std::unique_ptr<rocksdb::FSRandomAccessFile>* result,
	                                      rocksdb::IODebugContext* debug) override;

	// Waits for all handles and ignores `min_completions`, as RocksDB's own file system does.
	rocksdb::IOStatus Poll(std::vector<void*>& handles, size_t min_completions) override;
	rocksdb::IOStatus AbortIO(std::vector<void*>& handles) override;

#if ROCKSDB_MAJOR > 8 || (ROCKSDB_MAJOR == 8 && ROCKSDB_MINOR >= 4)
	void SupportedOps(int64_t& operations) override;
#elif ROCKSDB_MAJOR == 8 && ROCKSDB_MINOR >= 1
	bool use_async_io() override { return true; }
#endif

	const Queues& queues() const { return *queues_; }

private:
	const std::shared_ptr<Queues> queues_;
};

// NewFileSystem() of the public header, for callers that need a unique_ptr.
rocksdb::Status CreateFileSystem(const FileSystemOptions& options,
                                 const std::shared_ptr<rocksdb::FileSystem>& base,
                                 std::unique_ptr<rocksdb::FileSystem>* result);

} // namespace ringway

#endif // RINGWAY_ROCKSDB_FILE_SYSTEM_H
