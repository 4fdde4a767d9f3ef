// SPDX-License-Identifier: MIT OR Apache-2.0
// The life of an asynchronous read: begun, completed (by whoever reaps its queue), delivered (by who polls or aborts it), deleted.
#include "async_read.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace ringway {

using rocksdb::FSReadRequest;
using rocksdb::IOStatus;
using rocksdb::Slice;

Descriptor::~Descriptor()
{
	close(fd); // open for reading only: there is nothing that a failure could have lost
}

IOStatus ReadError(const std::string& path, uint64_t offset, size_t length, int64_t error)
{
	if (error == -ESTALE)
		return IOStatus::IOError(IOStatus::kStaleFile);
	return IOStatus::IOError("While pread offset " + std::to_string(offset) + " len " + std::to_string(length) + ": " + path,
	                         std::strerror(static_cast<int>(-error)));
}

AsyncRead::AsyncRead(std::shared_ptr<Descriptor> file, uint64_t offset, size_t length, char* scratch, ReadAsyncCallback callback,
                     void* callback_arg)
    : file_(std::move(file)), offset_(offset), length_(length), scratch_(scratch), callback_(std::move(callback)),
      callback_arg_(callback_arg)
{
}

AsyncRead::~AsyncRead()
{
	if (queue_ == nullptr)
		return;
	Cancel();
	Wait().PermitUncheckedError();
}

void AsyncRead::Completed(ringway_queue*, const ringway_completion* done)
{
	AsyncRead* read = static_cast<AsyncRead*>(done->arg);

	if (done->result < 0)
		read->status_ = ReadError(read->file_->path, read->offset_, read->length_, done->result);
	else
		read->got_ = static_cast<size_t>(done->result);
	read->in_flight_ = false;
}

bool AsyncRead::Begin(const std::shared_ptr<Queues>& queues)
{
	ThreadQueue* queue = queues->ForThisThread();
	if (queue == nullptr)
		return false;

	ringway_operation operation = ringway_read(file_->fd, scratch_, length_, offset_, Completed, this);
	operation.flags = RINGWAY_EXACT;

	std::lock_guard<std::mutex> guard(queue->lock);
	int64_t id = ringway_push(queue->queue, &operation);
	while (id == -EAGAIN && ringway_reap(queue->queue, 1, RINGWAY_FOREVER) > 0)
		id = ringway_push(queue->queue, &operation); // it was full; now there is room
	if (id < 0)
		return false;
	id_ = id;
	queues_ = queues;
	queue_ = queue;
	in_flight_ = true;
	queue->stats.async_reads++;
	ringway_submit(queue->queue); // should it fail, the wait submits again, and fails with the reason
	return true;
}

void AsyncRead::Known(IOStatus status, size_t length)
{
	status_ = std::move(status);
	got_ = length;
}

// Waits until it is not in flight.
IOStatus AsyncRead::Wait()
{
	if (queue_ == nullptr)
		return IOStatus::OK();

	// Others' completions come along: each notes its own result.
	std::lock_guard<std::mutex> guard(queue_->lock);
	while (in_flight_) {
		if (ringway_reap(queue_->queue, 1, RINGWAY_FOREVER) < 1)
			return IOStatus::IOError("ringway: no completion", ringway_last_error());
	}
	return IOStatus::OK();
}

void AsyncRead::Cancel()
{
	std::lock_guard<std::mutex> guard(queue_->lock);

	if (in_flight_)
		ringway_cancel(queue_->queue, id_); // it may have completed meanwhile, which is as good
}

void AsyncRead::Deliver(const IOStatus& status)
{
	if (delivered_)
		return;
	delivered_ = true;

	FSReadRequest request;
	request.offset = offset_;
	request.len = length_;
	request.scratch = scratch_;
	request.result = status.ok() ? Slice(scratch_, got_) : Slice();
	request.status = status;
	callback_(request, callback_arg_);
}

IOStatus AsyncRead::Poll(const std::vector<void*>& handles)
{
	for (void* handle : handles) {
		AsyncRead* read = static_cast<AsyncRead*>(handle);
		const IOStatus waited = read->Wait();

		read->Deliver(waited.ok() ? read->status_ : waited);
	}
	return IOStatus::OK();
}

IOStatus AsyncRead::Abort(const std::vector<void*>& handles)
{
	// All are cancelled before the first is waited for.
	for (void* handle : handles) {
		AsyncRead* read = static_cast<AsyncRead*>(handle);

		if (read->queue_ != nullptr && !read->delivered_) {
			read->Cancel();
			std::lock_guard<std::mutex> guard(read->queue_->lock);
			read->queue_->stats.aborted++;
		}
	}
	for (void* handle : handles) {
		AsyncRead* read = static_cast<AsyncRead*>(handle);

		read->Wait().PermitUncheckedError();
		read->Deliver(IOStatus::Aborted());
	}
	return IOStatus::OK();
}

void AsyncRead::Delete(void* handle)
{
	delete static_cast<AsyncRead*>(handle);
}

} // namespace ringway
