// SPDX-License-Identifier: MIT OR Apache-2.0
// How a thread finds its queue, and what happens when there is none to be had.
#include "thread_queue.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace ringway {

namespace {

using rocksdb::Status;
using Clock = std::chrono::steady_clock;

// RocksDB gives MultiRead at most 32 reads at a time. Submitted in two parts, the device works on the first while the kernel prepares the
// second: a batch of 32 direct reads took 7 % less time than with one system call, for 4 % more CPU time. And rings are locked memory, one
// for each thread.
constexpr uint32_t kEntries = 16;
constexpr uint32_t kInFlight = 256;

// A thread that got no queue does not ask again for each read.
constexpr std::chrono::seconds kAskAgain{1};

// Who waits under a queue's lock lets others have it after so long. Most reads are over before.
constexpr int64_t kSliceNs = 10 * 1000 * 1000;

// How often a wait is tried again, a millisecond apart, when the kernel is short of memory; as ringway_multi_read() does.
constexpr int kPatience = 100;
constexpr std::chrono::milliseconds kPause{1};

std::atomic<uint64_t> next_id{1};

// Set when the thread's notes are gone: what is read by later destructors of the thread does without a queue. (Of a type without
// a destructor, so that it is there to the end.)
thread_local bool thread_is_ending = false;

} // namespace

// A thread's notes of its queues, one for each file system that it reads from.
struct QueuesOfThread {
	struct Note {
		uint64_t id;
		std::weak_ptr<Queues> queues;
		ThreadQueue* queue; // NULL: there was none to be had
		Clock::time_point ask_again;
	};
	std::vector<Note> notes;

	~QueuesOfThread()
	{
		thread_is_ending = true;
		for (Note& note : notes)
			if (std::shared_ptr<Queues> queues = note.queues.lock())
				if (note.queue != nullptr)
					queues->GiveBack(note.queue);
	}

	Note* Find(uint64_t id)
	{
		for (Note& note : notes)
			if (note.id == id)
				return &note;
		return nullptr;
	}

	Note* Add(uint64_t id, std::weak_ptr<Queues> queues)
	{
		for (size_t i = notes.size(); i-- > 0;)
			if (notes[i].queues.expired())
				notes.erase(notes.begin() + static_cast<std::ptrdiff_t>(i));
		notes.push_back({id, std::move(queues), nullptr, Clock::time_point::min()});
		return &notes.back();
	}
};

namespace {

thread_local QueuesOfThread queues_of_thread;

} // namespace

void ThreadQueue::Lock()
{
	contenders_.fetch_add(1);
	lock_.lock();
	contenders_.fetch_sub(1);
}

bool ThreadQueue::WaitUntilCleared(const bool& flag)
{
	int patience = kPatience;

	Lock();
	while (flag && queue_ != nullptr) {
		// Others' completions come along: each notes its own result.
		const int reaped = ringway_reap(queue_, 1, kSliceNs);
		if ((reaped == -ENOMEM || reaped == -EAGAIN) && patience > 0) {
			patience--;
			lock_.unlock();
			std::this_thread::sleep_for(kPause);
			Lock();
			continue;
		}
		patience = kPatience;
		if (reaped < 0)
			Fail();
		else if (flag && contenders_.load() > 0) {
			lock_.unlock();
			while (contenders_.load() > 0) // a mutex is not fair: it would mostly be ours again
				std::this_thread::yield();
			Lock();
		}
	}
	const bool cleared = !flag;
	lock_.unlock();
	return cleared;
}

void ThreadQueue::Fail()
{
	if (queue_ == nullptr)
		return;
	const std::string why = ringway_last_error();
	// It calls back for all that is in flight. What the kernel does not give back is read into memory that is RocksDB's to free, as soon
	// as it is told that the read is over: there is no way to go on. (RocksDB's own file system ends the program when its ring fails.)
	if (ringway_destroy(&queue_) > 0) {
		std::fprintf(stderr, "ringway: reads in flight on a queue that has failed: %s\n", why.c_str());
		std::abort();
	}
	queues_->NoteFailure(why);
}

bool ThreadQueue::IsQuiet()
{
	std::unique_lock<std::mutex> guard(lock_, std::try_to_lock);

	return guard.owns_lock() && queue_ != nullptr && ringway_in_flight(queue_) == 0;
}

Queues::Queues(const FileSystemOptions& options) : options_(options), id_(next_id.fetch_add(1)) {}

Queues::~Queues()
{
	if (!options_.log)
		return;
	const FileSystemStats stats = Stats();
	std::fprintf(stderr,
	             "ringway: %llu queues; %llu batches of %llu reads; %llu asynchronous reads, %llu of them aborted; %llu times "
	             "without a queue\n",
	             static_cast<unsigned long long>(stats.queues), static_cast<unsigned long long>(stats.batches),
	             static_cast<unsigned long long>(stats.batch_reads), static_cast<unsigned long long>(stats.async_reads),
	             static_cast<unsigned long long>(stats.aborted), static_cast<unsigned long long>(stats.without_queue));
}

Status Queues::Make(std::unique_ptr<ThreadQueue>* made)
{
	ringway_options options;

	ringway_options_init(&options);
	options.entries = options_.entries != 0 ? options_.entries : kEntries;
	options.in_flight = options_.in_flight != 0 ? options_.in_flight : kInFlight;
	options.threads = options_.threads;
	// When a queue has failed, its reads in flight are waited for as those of a disk that hangs are: see ThreadQueue::Fail().
	options.close_wait_ms = UINT32_MAX;
	options.faults = options_.faults.empty() ? nullptr : options_.faults.c_str();
	if (!options_.backend.empty()) {
		uint32_t backend = RINGWAY_BACKEND_URING;

		while (backend <= RINGWAY_BACKEND_THREADS && options_.backend != ringway_backend_name(backend))
			backend++;
		if (backend > RINGWAY_BACKEND_THREADS)
			return Status::InvalidArgument("ringway: there is no backend " + options_.backend, "there are uring, kaio and threads");
		options.backend = backend;
	}

	ringway_queue* queue;
	const int error = ringway_create(&options, &queue);
	if (error == -EINVAL)
		return Status::InvalidArgument("ringway", ringway_last_error());
	if (error < 0)
		return Status::NotSupported("ringway", ringway_last_error());
	*made = std::make_unique<ThreadQueue>(this, queue);
	return Status::OK();
}

Status Queues::Start()
{
	std::unique_ptr<ThreadQueue> made;
	const Status status = Make(&made);
	if (!status.ok())
		return status;

	explained_.resize(ringway_explain(made->get(), nullptr, 0) + 1);
	ringway_explain(made->get(), &explained_[0], explained_.size());
	explained_.pop_back(); // the NUL
	if (options_.log)
		std::fprintf(stderr, "ringway: %s\n", explained_.c_str());
	idle_.push_back(made.get());
	all_.push_back(std::move(made));
	return Status::OK();
}

ThreadQueue* Queues::Take()
{
	{
		std::lock_guard<std::mutex> guard(lock_);
		for (size_t i = idle_.size(); i-- > 0;) {
			ThreadQueue* const queue = idle_[i];

			// Somebody may be waiting for what its last thread left in flight.
			if (queue->IsQuiet()) {
				idle_.erase(idle_.begin() + static_cast<std::ptrdiff_t>(i));
				return queue;
			}
		}
	}

	// Not under the lock: it takes some system calls.
	std::unique_ptr<ThreadQueue> made;
	const Status status = Make(&made);

	std::lock_guard<std::mutex> guard(lock_);
	if (!status.ok()) {
		if (refused_.empty())
			std::fprintf(stderr, "ringway: no queue for a thread, which reads without one: %s\n", status.ToString().c_str());
		refused_ = status.ToString();
		return nullptr;
	}
	ThreadQueue* queue = made.get();
	all_.push_back(std::move(made));
	return queue;
}

void Queues::GiveBack(ThreadQueue* queue)
{
	std::lock_guard<std::mutex> guard(lock_);
	idle_.push_back(queue);
}

ThreadQueue* Queues::ForThisThread()
{
	if (thread_is_ending)
		return nullptr;
	QueuesOfThread::Note* note = queues_of_thread.Find(id_);
	if (note == nullptr)
		note = queues_of_thread.Add(id_, weak_from_this());
	if (note->queue == nullptr) {
		const Clock::time_point now = Clock::now();

		if (now < note->ask_again)
			return nullptr;
		note->queue = Take();
		note->ask_again = now + kAskAgain;
	}
	return note->queue;
}

void Queues::CountWithoutQueue()
{
	without_queue_++;
}

void Queues::NoteFailure(const std::string& why)
{
	std::lock_guard<std::mutex> guard(lock_);
	refused_ = why;
}

FileSystemStats Queues::Stats() const
{
	std::lock_guard<std::mutex> guard(lock_);
	FileSystemStats sum;

	sum.queues = all_.size();
	for (const std::unique_ptr<ThreadQueue>& queue : all_) {
		sum.batches += queue->batches;
		sum.batch_reads += queue->batch_reads;
		sum.async_reads += queue->async_reads;
		sum.aborted += queue->aborted;
	}
	sum.without_queue = without_queue_;
	return sum;
}

std::string Queues::Explain() const
{
	std::lock_guard<std::mutex> guard(lock_);

	if (refused_.empty())
		return explained_;
	return explained_ + "\nno queue for a thread, which read without one: " + refused_;
}

} // namespace ringway
