// SPDX-License-Identifier: MIT OR Apache-2.0
// AsyncRead: one read started by ReadAsync. RocksDB knows it as an io_handle.
//
// Each read is submitted immediately and on its own. Submitting several together would save system
// calls, but nothing marks the last one: RocksDB starts a read ahead, processes the data that it
// already has, and polls only when it needs the next data. A read that is held back until the poll
// would start when it should already be complete.
#ifndef RINGWAY_ROCKSDB_ASYNC_READ_H
#define RINGWAY_ROCKSDB_ASYNC_READ_H

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/file_system.h"
#include "rocksdb/version.h"
#include "thread_queue.h"

namespace ringway {

#if ROCKSDB_MAJOR >= 9
using ReadAsyncCallback = std::function<void(rocksdb::FSReadRequest&, void*)>;
#else
using ReadAsyncCallback = std::function<void(const rocksdb::FSReadRequest&, void*)>;
#endif

// Our own descriptor of a file. The file and its reads in flight share it, so that it stays open
// until the last of them is gone.
struct Descriptor {
	const int fd;
	const std::string path;

	Descriptor(int owned, std::string name) : fd(owned), path(std::move(name)) {}
	Descriptor(const Descriptor&) = delete;
	Descriptor& operator=(const Descriptor&) = delete;
	~Descriptor();
};

// The status that RocksDB's own file returns for a read that fails with -error.
rocksdb::IOStatus ReadError(const std::string& path, uint64_t offset, size_t length, int64_t error);

class AsyncRead {
public:
	// The parameters are those of ReadAsync.
	AsyncRead(std::shared_ptr<Descriptor> file, uint64_t offset, size_t length, char* scratch,
	          ReadAsyncCallback callback, void* callback_arg);
	AsyncRead(const AsyncRead&) = delete;
	AsyncRead& operator=(const AsyncRead&) = delete;

	// Cancels the read if it is in flight, and waits until it has completed: the kernel must
	// not write to `scratch` after the caller has freed it.
	~AsyncRead();

	// Submits the read to `queue`, which is one of `queues`. Returns false and changes nothing
	// if `queue` is NULL or does not accept the read.
	bool Submit(ThreadQueue* queue, const std::shared_ptr<Queues>& queues);

	// Sets the result of a read that was not submitted, but done by RocksDB's file.
	void SetResult(rocksdb::IOStatus status, const rocksdb::Slice& result);

	// Waits for every handle and calls its callback. A callback is called once, even if its
	// handle is polled again.
	static rocksdb::IOStatus Poll(const std::vector<void*>& handles);

	// Cancels the reads that are in flight, waits for them, and calls each callback that has
	// not been called yet with Aborted. The header of some RocksDB versions says that AbortIO
	// does not call callbacks; RocksDB's own file system does, and what a callback owns leaks
	// otherwise.
	static rocksdb::IOStatus Abort(const std::vector<void*>& handles);

	// The IOHandleDeleter of every handle.
	static void Delete(void* handle);

private:
	static void OnCompletion(ringway_queue* queue, const ringway_completion* completion);
	void Wait();
	void Cancel();
	void CallBack(const rocksdb::IOStatus& status);

	const std::shared_ptr<Descriptor> file_;
	const uint64_t offset_;
	const size_t length_;
	char* const scratch_;
	const ReadAsyncCallback callback_;
	void* const callback_arg_;

	std::shared_ptr<Queues> queues_; // keeps queue_ alive
	ThreadQueue* queue_ = nullptr;
	int64_t id_ = 0;

	// While in_flight_ is set, these three are protected by the lock of queue_.
	bool in_flight_ = false;
	rocksdb::Slice result_;
	rocksdb::IOStatus status_;

	// Used only by Poll and Abort, which RocksDB never runs at the same time on one handle.
	bool called_back_ = false;
};

} // namespace ringway

#endif // RINGWAY_ROCKSDB_ASYNC_READ_H
