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

namespace {

// How long a full queue is waited for; then the read is done without it.
constexpr int64_t kPatienceNs = 10 * 1000 * 1000;

} // namespace

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
	Wait();
}

void AsyncRead::Completed(ringway_queue*, const ringway_completion* done)
{
	AsyncRead* read = static_cast<AsyncRead*>(done->user_data);

	if (done->result < 0)
		read->status_ = ReadError(read->file_->path, read->offset_, read->length_, done->result);
	else
		read->result_ = Slice(read->scratch_, static_cast<size_t>(done->result));
	read->in_flight_ = false;
}

bool AsyncRead::Begin(ThreadQueue* queue, const std::shared_ptr<Queues>& queues)
{
	if (queue == nullptr)
		return false;

	ringway_operation operation = ringway_prep_read(file_->fd, scratch_, length_, offset_, Completed, this);
	operation.flags = RINGWAY_EXACT;

	ThreadQueue::Guard guard(queue);
	if (queue->get() == nullptr)
		return false;
	int64_t id = ringway_push(queue->get(), &operation);
	if (id == -EAGAIN && ringway_reap(queue->get(), 1, kPatienceNs) > 0)
		id = ringway_push(queue->get(), &operation); // it was full; now there is room
	if (id < 0)
		return false;
	id_ = id;
	queues_ = queues;
	queue_ = queue;
	in_flight_ = true;
	queue->async_reads++;
	ringway_submit(queue->get()); // should it fail, the wait submits again, and fails with the reason
	return true;
}

void AsyncRead::Known(IOStatus status, const Slice& result)
{
	status_ = std::move(status);
	result_ = result;
}

// Waits until it is not in flight. There is no other way for it to return: the caller may free the memory afterwards.
void AsyncRead::Wait()
{
	if (queue_ == nullptr || queue_->WaitUntilCleared(in_flight_))
		return;
	in_flight_ = false;
	status_ = ReadError(file_->path, offset_, length_, -ECHILD);
}

void AsyncRead::Cancel()
{
	ThreadQueue::Guard guard(queue_);

	if (in_flight_ && queue_->get() != nullptr)
		ringway_cancel(queue_->get(), id_); // it may have completed meanwhile, which is as good
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
	request.result = status.ok() ? result_ : Slice();
	request.status = status;
	callback_(request, callback_arg_);
}

IOStatus AsyncRead::Poll(const std::vector<void*>& handles)
{
	for (void* handle : handles) {
		AsyncRead* read = static_cast<AsyncRead*>(handle);

		read->Wait();
		read->Deliver(read->status_);
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
			read->queue_->aborted++;
		}
	}
	for (void* handle : handles) {
		AsyncRead* read = static_cast<AsyncRead*>(handle);

		read->Wait();
		read->Deliver(IOStatus::Aborted());
	}
	return IOStatus::OK();
}

void AsyncRead::Delete(void* handle)
{
	delete static_cast<AsyncRead*>(handle);
}

} // namespace ringway
