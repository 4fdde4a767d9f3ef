// SPDX-License-Identifier: MIT OR Apache-2.0
// A read begun by ReadAsync: what RocksDB knows as an io_handle.
//
// It is submitted at once, and alone. To gather reads and submit them together would spare system calls, but nothing tells when the last
// of them has come: RocksDB reads ahead, works on what it has, and polls only when it needs the data, so a read kept back would begin when
// it is wanted, which is what reading ahead is to avoid.
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

// A descriptor of our own for a file. It is shared by the file and its reads in flight, so that it outlives both.
struct Descriptor {
	const int fd;
	const std::string path;

	Descriptor(int owned, std::string name) : fd(owned), path(std::move(name)) {}
	Descriptor(const Descriptor&) = delete;
	Descriptor& operator=(const Descriptor&) = delete;
	~Descriptor();
};

// The status that RocksDB's own file gives for such an error.
rocksdb::IOStatus ReadError(const std::string& path, uint64_t offset, size_t length, int64_t error);

class AsyncRead {
public:
	// As the arguments of ReadAsync.
	AsyncRead(std::shared_ptr<Descriptor> file, uint64_t offset, size_t length, char* scratch, ReadAsyncCallback callback,
	          void* callback_arg);
	AsyncRead(const AsyncRead&) = delete;
	AsyncRead& operator=(const AsyncRead&) = delete;

	// Waits for a read that is still in flight: the kernel must not write to memory that is someone else's by then.
	~AsyncRead();

	// Submits it on a queue, one of `queues`. False, with nothing done, if there is none, or that cannot take it.
	bool Begin(ThreadQueue* queue, const std::shared_ptr<Queues>& queues);

	// In place of Begin(): the result is known already.
	void Known(rocksdb::IOStatus status, const rocksdb::Slice& result);

	// Waits for all of them and calls their callbacks, each of which is called once in all.
	static rocksdb::IOStatus Poll(const std::vector<void*>& handles);

	// Cancels what is still in flight, waits, and calls the callbacks that have not been called with Aborted. As RocksDB's own file
	// system does it: its header said for a while that they shall not be called, but what they are given leaks unless they are.
	static rocksdb::IOStatus Abort(const std::vector<void*>& handles);

	static void Delete(void* handle);

private:
	static void Completed(ringway_queue* queue, const ringway_completion* done);
	void Wait();
	void Cancel();
	void Deliver(const rocksdb::IOStatus& status);

	const std::shared_ptr<Descriptor> file_;
	const uint64_t offset_;
	const size_t length_;
	char* const scratch_;
	const ReadAsyncCallback callback_;
	void* const callback_arg_;

	std::shared_ptr<Queues> queues_; // keeps queue_
	ThreadQueue* queue_ = nullptr;
	int64_t id_ = 0;
	bool in_flight_ = false; // this and what follows: under the queue's lock as long as it is set
	rocksdb::Slice result_;
	rocksdb::IOStatus status_;

	bool delivered_ = false; // only who polls or aborts: RocksDB lets one thread at a time do that
};

} // namespace ringway

#endif // RINGWAY_ROCKSDB_ASYNC_READ_H
