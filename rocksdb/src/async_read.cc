// SPDX-License-Identifier: MIT OR Apache-2.0
// The life of an asynchronous read: submitted; completed, on the thread that reaps its queue;
// reported to its callback, on the thread that polls or aborts it; deleted.
#include "async_read.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ringway {

using rocksdb::FSReadRequest;
using rocksdb::IOStatus;
using rocksdb::Slice;

namespace {

// How long to wait for a free slot in a full queue before falling back to RocksDB's file.
constexpr int64_t kFullQueueWaitNs = 10 * 1000 * 1000;

} // namespace

Descriptor::~Descriptor()
{
	close(fd); // read-only: an error of close() loses no data
}

IOStatus ReadError(const std::string& path, uint64_t offset, size_t length, int64_t error)
{
	const std::string what = "While pread offset " + std::to_string(offset) + " len " +
	                         std::to_string(length) + ": " + path;
	const char* const why = std::strerror(static_cast<int>(-error));
	IOStatus status;

	switch (-error) {
	case ENOSPC:
		status = IOStatus::NoSpace(what, why);
		status.SetRetryable(true);
		return status;
	case ENOENT:
		return IOStatus::PathNotFound(what, why);
	case ESTALE:
		return IOStatus::IOError(IOStatus::kStaleFile);
	default:
		return IOStatus::IOError(what, why);
	}
}

AsyncRead::AsyncRead(std::shared_ptr<Descriptor> file, uint64_t offset, size_t length,
                     char* scratch, ReadAsyncCallback callback, void* callback_arg)
    : file_(std::move(file)), offset_(offset), length_(length), scratch_(scratch),
      callback_(std::move(callback)), callback_arg_(callback_arg)
{
}

AsyncRead::~AsyncRead()
{
	if (queue_ == nullptr)
		return;
	Cancel();
	Wait();
}

void AsyncRead::OnCompletion(ringway_queue*, const ringway_completion* completion)
{
	AsyncRead* read = static_cast<AsyncRead*>(completion->user_data);

	if (completion->result < 0)
		read->status_ =
		    ReadError(read->file_->path, read->offset_, read->length_, completion->result);
	else
		read->result_ = Slice(read->scratch_, static_cast<size_t>(completion->result));
	read->in_flight_ = false;
}

bool AsyncRead::Submit(ThreadQueue* queue, const std::shared_ptr<Queues>& queues)
{
	if (queue == nullptr)
		return false;

	ringway_operation operation =
	    ringway_prep_read(file_->fd, scratch_, length_, offset_, OnCompletion, this);
	operation.flags = RINGWAY_EXACT;

	ThreadQueue::Guard guard(queue);
	if (queue->get() == nullptr)
		return false;
	int64_t id = ringway_push(queue->get(), &operation);
	// -EAGAIN: the queue is full.
	if (id == -EAGAIN && ringway_reap(queue->get(), 1, kFullQueueWaitNs) > 0)
		id = ringway_push(queue->get(), &operation);
	if (id < 0)
		return false;
	id_ = id;
	queues_ = queues;
	queue_ = queue;
	in_flight_ = true;
	queue->async_reads++;
	ringway_submit(queue->get()); // if this fails, Wait() submits again and reports the error
	return true;
}

void AsyncRead::SetResult(IOStatus status, const Slice& result)
{
	status_ = std::move(status);
	result_ = result;
}

// Returns only when the read is not in flight, because the caller may then free the memory.
void AsyncRead::Wait()
{
	if (queue_ == nullptr || queue_->WaitUntilCleared(in_flight_))
		return;
	in_flight_ = false;
	status_ = ReadError(file_->path, offset_, length_, -ECHILD);
}

void AsyncRead::Cancel()
{
	if (queue_->IsForked())
		return;
	ThreadQueue::Guard guard(queue_);

	if (in_flight_ && queue_->get() != nullptr)
		ringway_cancel(queue_->get(), id_); // an error means that the read has completed
}

void AsyncRead::CallBack(const IOStatus& status)
{
	if (called_back_)
		return;
	called_back_ = true;

	FSReadRequest request;
	request.offset = offset_;
	request.len = length_;
	request.scratch = scratch_;
	request.result = status.ok() ? result_ : Slice();
	request.status = status;
	callback_(request, callback_arg_);
}

IOStatus AsyncRead::Poll(const std::vector<void*>& handles)
{
	for (void* handle : handles) {
		AsyncRead* read = static_cast<AsyncRead*>(handle);

		read->Wait();
		read->CallBack(read->status_);
	}
	return IOStatus::OK();
}

IOStatus AsyncRead::Abort(const std::vector<void*>& handles)
{
	// Cancel all reads before waiting for the first.
	for (void* handle : handles) {
		AsyncRead* read = static_cast<AsyncRead*>(handle);

		if (read->queue_ != nullptr && !read->called_back_) {
			read->Cancel();
			read->queue_->aborted++;
		}
	}
	for (void* handle : handles) {
		AsyncRead* read = static_cast<AsyncRead*>(handle);

		read->Wait();
		read->CallBack(IOStatus::Aborted());
	}
	return IOStatus::OK();
}

void AsyncRead::Delete(void* handle)
{
	delete static_cast<AsyncRead*>(handle);
}

} // namespace ringway
