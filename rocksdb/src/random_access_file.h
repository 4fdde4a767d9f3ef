// SPDX-License-Identifier: MIT OR Apache-2.0
// A file whose MultiRead and ReadAsync go to the thread's queue. Everything else is the base's file, which does it well: a single read
// is a pread.
#ifndef RINGWAY_ROCKSDB_RANDOM_ACCESS_FILE_H
#define RINGWAY_ROCKSDB_RANDOM_ACCESS_FILE_H

#include <memory>

#include "async_read.h"
#include "rocksdb/file_system.h"
#include "thread_queue.h"

namespace ringway {

class RandomAccessFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
public:
	// `descriptor` is of the same file as `base`, and open for direct I/O if that is. NULL: there was none to be had, and the base's file
	// does every read. So it does without `queues`, for what is mapped. Even then ReadAsync gives handles of ours, which are all that
	// Poll and AbortIO know.
	RandomAccessFile(std::unique_ptr<rocksdb::FSRandomAccessFile>&& base, std::shared_ptr<Descriptor> descriptor,
	                 std::shared_ptr<Queues> queues);

	rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count, const rocksdb::IOOptions& options,
	                            rocksdb::IODebugContext* debug) override;
	rocksdb::IOStatus ReadAsync(rocksdb::FSReadRequest& request, const rocksdb::IOOptions& options, ReadAsyncCallback callback,
	                            void* callback_arg, void** handle, rocksdb::IOHandleDeleter* delete_handle,
	                            rocksdb::IODebugContext* debug) override;
	void Hint(AccessPattern pattern) override;

private:
	ThreadQueue* Queue();
	void CountWithoutQueue();

	const std::shared_ptr<Descriptor> descriptor_;
	const std::shared_ptr<Queues> queues_;
	const uint32_t range_flags_;
};

} // namespace ringway

#endif // RINGWAY_ROCKSDB_RANDOM_ACCESS_FILE_H
