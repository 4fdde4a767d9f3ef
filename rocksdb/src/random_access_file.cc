// SPDX-License-Identifier: MIT OR Apache-2.0
// MultiRead as one batch on the thread's queue, and ReadAsync as an AsyncRead. Both fall back to
// the base's file.
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

// The most reads that RocksDB passes to MultiRead (MultiGetContext::MAX_BATCH_SIZE). A larger batch
// works, but needs an allocation.
constexpr size_t kInlineRanges = 32;

} // namespace

RandomAccessFile::RandomAccessFile(std::unique_ptr<rocksdb::FSRandomAccessFile>&& base,
                                   std::shared_ptr<Descriptor> descriptor,
                                   std::shared_ptr<Queues> queues)
    : FSRandomAccessFileOwnerWrapper(std::move(base)), descriptor_(std::move(descriptor)),
      queues_(std::move(queues)),
      range_flags_(target()->use_direct_io() ? RINGWAY_RANGE_DIRECT : RINGWAY_RANGE_BUFFERED)
{
}

// The queue for reads of this file by the calling thread; NULL if the base's file must do them.
ThreadQueue* RandomAccessFile::Queue()
{
	return descriptor_ == nullptr || queues_ == nullptr ? nullptr : queues_->ForThisThread();
}

void RandomAccessFile::CountFallback()
{
	if (queues_ != nullptr)
		queues_->CountFallback();
}

IOStatus RandomAccessFile::MultiRead(FSReadRequest* requests, size_t count,
                                     const IOOptions& options, IODebugContext* debug)
{
	// A queue does not make a single read faster.
	if (count < 2)
		return target()->MultiRead(requests, count, options, debug);

	ThreadQueue* queue = Queue();
	if (queue == nullptr) {
		CountFallback();
		return target()->MultiRead(requests, count, options, debug);
	}

	std::array<ringway_range, kInlineRanges> inline_ranges;
	std::vector<ringway_range> allocated;
	ringway_range* ranges = inline_ranges.data();
	if (count > inline_ranges.size()) {
		allocated.resize(count);
		ranges = allocated.data();
	}
	for (size_t i = 0; i < count; i++)
		ranges[i] = {descriptor_->fd, range_flags_,        requests[i].offset,
		             requests[i].len, requests[i].scratch, 0};

	int failed;
	{
		ThreadQueue::Guard guard(queue);
		failed = queue->get() == nullptr ? -ESHUTDOWN
		                                 : ringway_multi_read(queue->get(), ranges, count);
		if (failed >= 0) {
			queue->batches++;
			queue->batch_reads += count;
		}
		if (failed == -EIO)
			queue->Fail();
	}
	// None of these reads is in flight: the queue is full of asynchronous reads or has failed,
	// or this is a forked child.
	if (failed < 0) {
		CountFallback();
		return target()->MultiRead(requests, count, options, debug);
	}

	for (size_t i = 0; i < count; i++) {
		FSReadRequest& request = requests[i];
		const int64_t result = ranges[i].result;

		if (result < 0) {
			request.status =
			    ReadError(descriptor_->path, request.offset, request.len, result);
			request.result = Slice(request.scratch, 0);
		} else {
			request.status = IOStatus::OK();
			request.result = Slice(request.scratch, static_cast<size_t>(result));
		}
	}
	return IOStatus::OK();
}

IOStatus RandomAccessFile::ReadAsync(FSReadRequest& request, const IOOptions& options,
                                     ReadAsyncCallback callback, void* callback_arg, void** handle,
                                     IOHandleDeleter* delete_handle, IODebugContext* debug)
{
	auto read = std::make_unique<AsyncRead>(descriptor_, request.offset, request.len,
	                                        request.scratch, std::move(callback), callback_arg);

	if (!read->Submit(Queue(), queues_)) {
		// Read now, and report the result from Poll() as if the read had been in flight.
		Slice result;
		IOStatus status = target()->Read(request.offset, request.len, options, &result,
		                                 request.scratch, debug);

		CountFallback();
		read->SetResult(std::move(status), result);
	}
	*handle = read.release();
	*delete_handle = AsyncRead::Delete;
	return IOStatus::OK();
}

// Advice applies to one descriptor, and there are two. RocksDB advises random access for tables,
// which stops the kernel from reading ahead.
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
		return; // concerns the page cache, which both descriptors share
	}
	// An error changes no result.
	static_cast<void>(posix_fadvise(descriptor_->fd, 0, 0, advice));
}

} // namespace ringway
