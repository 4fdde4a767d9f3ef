// SPDX-License-Identifier: MIT OR Apache-2.0
// MultiRead as one batch, ReadAsync as a read in flight.
#include "random_access_file.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <utility>
#include <vector>

namespace ringway {

using rocksdb::FSReadRequest;
using rocksdb::IODebugContext;
using rocksdb::IOHandleDeleter;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

// What RocksDB asks for at a time, at most (MultiGetContext::MAX_BATCH_SIZE). More is possible; it only costs an allocation.
constexpr size_t kUsualBatch = 32;

} // namespace

RandomAccessFile::RandomAccessFile(std::unique_ptr<rocksdb::FSRandomAccessFile>&& base, std::shared_ptr<Descriptor> descriptor,
                                   std::shared_ptr<Queues> queues)
    : FSRandomAccessFileOwnerWrapper(std::move(base)), descriptor_(std::move(descriptor)), queues_(std::move(queues)),
      range_flags_(target()->use_direct_io() ? RINGWAY_RANGE_DIRECT : RINGWAY_RANGE_BUFFERED)
{
}

// The queue for a read by this thread; NULL if it is to do without.
ThreadQueue* RandomAccessFile::Queue()
{
	return descriptor_ == nullptr || queues_ == nullptr ? nullptr : queues_->ForThisThread();
}

void RandomAccessFile::CountWithoutQueue()
{
	if (queues_ != nullptr)
		queues_->CountWithoutQueue();
}

IOStatus RandomAccessFile::MultiRead(FSReadRequest* requests, size_t count, const IOOptions& options, IODebugContext* debug)
{
	// A lone read gains nothing by a queue.
	if (count < 2)
		return target()->MultiRead(requests, count, options, debug);

	ThreadQueue* queue = Queue();
	if (queue == nullptr) {
		CountWithoutQueue();
		return target()->MultiRead(requests, count, options, debug);
	}

	std::array<ringway_range, kUsualBatch> usual;
	std::vector<ringway_range> unusual;
	ringway_range* ranges = usual.data();
	if (count > usual.size()) {
		unusual.resize(count);
		ranges = unusual.data();
	}
	for (size_t i = 0; i < count; i++)
		ranges[i] = {descriptor_->fd, range_flags_, requests[i].offset, requests[i].len, requests[i].scratch, 0};

	int failed;
	{
		ThreadQueue::Guard guard(queue);
		failed = queue->get() == nullptr ? -ESHUTDOWN : ringway_multi_read(queue->get(), ranges, count);
		if (failed >= 0) {
			queue->batches++;
			queue->batch_reads += count;
		}
		if (failed == -EIO)
			queue->Fail();
	}
	if (failed < 0) { // nothing is in flight: the queue is full of asynchronous reads or has failed, or this is a forked child
		CountWithoutQueue();
		return target()->MultiRead(requests, count, options, debug);
	}

	for (size_t i = 0; i < count; i++) {
		FSReadRequest& request = requests[i];
		const int64_t result = ranges[i].result;

		if (result < 0) {
			request.status = ReadError(descriptor_->path, request.offset, request.len, result);
			request.result = Slice(request.scratch, 0);
		} else {
			request.status = IOStatus::OK();
			request.result = Slice(request.scratch, static_cast<size_t>(result));
		}
	}
	return IOStatus::OK();
}

IOStatus RandomAccessFile::ReadAsync(FSReadRequest& request, const IOOptions& options, ReadAsyncCallback callback, void* callback_arg,
                                     void** handle, IOHandleDeleter* delete_handle, IODebugContext* debug)
{
	auto read = std::make_unique<AsyncRead>(descriptor_, request.offset, request.len, request.scratch, std::move(callback),
	                                        callback_arg);

	if (!read->Begin(Queue(), queues_)) {
		// It is read here and now, and delivered by Poll() as if it had been in flight.
		Slice result;
		IOStatus status = target()->Read(request.offset, request.len, options, &result, request.scratch, debug);

		CountWithoutQueue();
		read->Known(std::move(status), result);
	}
	*handle = read.release();
	*delete_handle = AsyncRead::Delete;
	return IOStatus::OK();
}

// What is advised holds for one descriptor, and there are two: RocksDB tells that a table is read at random, which is to keep the kernel
// from reading ahead.
void RandomAccessFile::Hint(AccessPattern pattern)
{
	target()->Hint(pattern);
	if (descriptor_ == nullptr || (range_flags_ & RINGWAY_RANGE_DIRECT) != 0)
		return;

	int advice = POSIX_FADV_NORMAL;
	switch (pattern) {
	case kNormal:
		break;
	case kRandom:
		advice = POSIX_FADV_RANDOM;
		break;
	case kSequential:
		advice = POSIX_FADV_SEQUENTIAL;
		break;
	case kWillNeed:
	case kWontNeed:
		return; // of the page cache, which both share
	}
	static_cast<void>(posix_fadvise(descriptor_->fd, 0, 0, advice)); // advice: nothing goes wrong without
}

} // namespace ringway
