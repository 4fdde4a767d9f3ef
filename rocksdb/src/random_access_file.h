// SPDX-License-Identifier: MIT OR Apache-2.0
// RandomAccessFile: a file whose MultiRead and ReadAsync are submitted to the queue of the calling
// thread. Everything else is passed to the base's file; a queue does not make a single read faster.
#ifndef RINGWAY_ROCKSDB_RANDOM_ACCESS_FILE_H
#define RINGWAY_ROCKSDB_RANDOM_ACCESS_FILE_H

#include <memory>

#include "async_read.h"
#include "rocksdb/file_system.h"
#include "thread_queue.h"

namespace ringway {

class RandomAccessFile : public rocksdb::FSRandomAccessFileOwnerWrapper {
public:
	// `descriptor` is open on the same file as `base`, and for direct I/O if `base` is. It is
	// NULL if no descriptor could be opened, and `queues` is NULL if the file is mapped; in
	// both cases the base's file does every read. ReadAsync returns our own handles even then,
	// because Poll and AbortIO accept no others.
	RandomAccessFile(std::unique_ptr<rocksdb::FSRandomAccessFile>&& base,
	                 std::shared_ptr<Descriptor> descriptor, std::shared_ptr<Queues> queues);

	rocksdb::IOStatus MultiRead(rocksdb::FSReadRequest* requests, size_t count,
	                            const rocksdb::IOOptions& options,
	                            rocksdb::IODebugContext* debug) override;
	rocksdb::IOStatus ReadAsync(rocksdb::FSReadRequest& request,
	                            const rocksdb::IOOptions& options, ReadAsyncCallback callback,
	                            void* callback_arg, void** handle,
	                            rocksdb::IOHandleDeleter* delete_handle,
	                            rocksdb::IODebugContext* debug) override;
	void Hint(AccessPattern pattern) override;

private:
	ThreadQueue* Queue();
	void CountFallback();

	const std::shared_ptr<Descriptor> descriptor_;
	const std::shared_ptr<Queues> queues_;
	const uint32_t range_flags_;
};

} // namespace ringway

#endif // RINGWAY_ROCKSDB_RANDOM_ACCESS_FILE_H
