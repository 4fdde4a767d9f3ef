// SPDX-License-Identifier: MIT OR Apache-2.0
// How a thread gets a queue, waits on it, and passes it on, and what happens when a queue fails.
#include "thread_queue.h"

#include <pthread.h>

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

// RocksDB passes at most 32 reads to MultiRead. They are submitted in two parts, so that the device
// works on the first while the kernel prepares the second: a batch of 32 direct reads took 7 % less
// time than with one system call, and 4 % more CPU time. Small rings also save locked memory, since
// there is one for each thread.
constexpr uint32_t kEntries = 16;
constexpr uint32_t kInFlight = 256;

// How long a thread that could not get a queue reads without one before it tries again.
constexpr std::chrono::seconds kRetryInterval{1};

// The longest time that a thread waits for completions before it offers the queue's lock to others.
// Most reads take less.
constexpr int64_t kWaitNs = 10 * 1000 * 1000;

// How often, and how long apart, a wait is retried while the kernel is out of memory.
// ringway_multi_read() uses the same values.
constexpr int kMaxRetries = 100;
constexpr std::chrono::milliseconds kRetryDelay{1};

std::atomic<uint64_t> next_id{1};

std::atomic<uint64_t> forks{0};
const int forks_are_counted = pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1); });

// Set when this thread's QueuesOfThread is destroyed. Destructors of the thread that run later read
// without a queue. (A bool has no destructor, so it stays valid until the thread ends.)
thread_local bool thread_is_ending = false;

} // namespace

uint64_t ForkGeneration()
{
	static_cast<void>(forks_are_counted);
	return forks.load(std::memory_order_relaxed);
}

// The queues of a thread: an entry for each file system that it reads from.
struct QueuesOfThread {
	struct Entry {
		uint64_t id;
		std::weak_ptr<Queues> queues;
		ThreadQueue* queue; // NULL: no queue could be created
		Clock::time_point next_attempt;
	};
	std::vector<Entry> entries;

	~QueuesOfThread()
	{
		thread_is_ending = true;
		for (Entry& entry : entries)
			if (std::shared_ptr<Queues> queues = entry.queues.lock())
				if (entry.queue != nullptr)
					queues->Release(entry.queue);
	}

	Entry* Find(uint64_t id)
	{
		for (Entry& entry : entries)
			if (entry.id == id)
				return &entry;
		return nullptr;
	}

	Entry* Add(uint64_t id, std::weak_ptr<Queues> queues)
	{
		for (size_t i = entries.size(); i-- > 0;)
			if (entries[i].queues.expired())
				entries.erase(entries.begin() + static_cast<std::ptrdiff_t>(i));
		entries.push_back({id, std::move(queues), nullptr, Clock::time_point::min()});
		return &entries.back();
	}
};

namespace {

thread_local QueuesOfThread queues_of_thread;

} // namespace

bool ThreadQueue::WaitUntilCleared(const bool& flag)
{
	int retries = kMaxRetries;

	if (IsForked())
		return !flag;
	lock_->lock();
	while (flag && queue_ != nullptr) {
		// This may also complete reads of other threads; each records its own result.
		const int reaped = ringway_reap(queue_, 1, kWaitNs);
		if ((reaped == -ENOMEM || reaped == -EAGAIN || reaped == -EBUSY) && retries > 0) {
			retries--;
			lock_->unlock();
			std::this_thread::sleep_for(kRetryDelay);
			lock_->lock();
			continue;
		}
		retries = kMaxRetries;
		if (reaped < 0)
			Fail();
		else if (flag && lock_->IsWanted()) {
			lock_->unlock();
			lock_->lock();
		}
	}
	const bool cleared = !flag;
	lock_->unlock();
	return cleared;
}

void ThreadQueue::Fail()
{
	if (queue_ == nullptr)
		return;
	const std::string why = ringway_last_error();
	// ringway_destroy() completes every read in flight. If the kernel still owns some of their
	// memory, the only safe action is to abort: RocksDB frees that memory once it learns that
	// the read has completed. (RocksDB's own file system also aborts when its ring fails.)
	if (ringway_destroy(&queue_) > 0) {
		std::fprintf(stderr,
		             "ringway: cannot cancel the reads in flight on a failed queue: %s\n",
		             why.c_str());
		std::abort();
	}
	queues_->RecordFailure(why);
}

bool ThreadQueue::IsIdle()
{
	std::unique_lock<FairLock> guard(*lock_, std::try_to_lock);

	return guard.owns_lock() && queue_ != nullptr && ringway_in_flight(queue_) == 0;
}

Queues::Queues(const FileSystemOptions& options) : options_(options), id_(next_id.fetch_add(1)) {}

Queues::~Queues()
{
	if (!options_.log)
		return;
	const FileSystemStats stats = Stats();
	std::fprintf(stderr,
	             "ringway: %llu queues; %llu batches of %llu reads; %llu asynchronous reads, "
	             "%llu of them aborted; %llu fallbacks\n",
	             static_cast<unsigned long long>(stats.queues),
	             static_cast<unsigned long long>(stats.batches),
	             static_cast<unsigned long long>(stats.batch_reads),
	             static_cast<unsigned long long>(stats.async_reads),
	             static_cast<unsigned long long>(stats.aborted),
	             static_cast<unsigned long long>(stats.fallbacks));
}

Status Queues::Create(std::unique_ptr<ThreadQueue>* created)
{
	ringway_options options;

	ringway_options_init(&options);
	options.entries = options_.entries != 0 ? options_.entries : kEntries;
	options.in_flight = options_.in_flight != 0 ? options_.in_flight : kInFlight;
	options.threads = options_.threads;
	// A failed queue waits for its reads in flight without a limit; see ThreadQueue::Fail().
	options.close_wait_ms = UINT32_MAX;
	options.faults = options_.faults.empty() ? nullptr : options_.faults.c_str();
	if (!options_.backend.empty()) {
		uint32_t backend = RINGWAY_BACKEND_URING;

		while (backend <= RINGWAY_BACKEND_THREADS &&
		       options_.backend != ringway_backend_name(backend))
			backend++;
		if (backend > RINGWAY_BACKEND_THREADS)
			return Status::InvalidArgument("ringway: unknown backend " +
			                                   options_.backend,
			                               "use uring, kaio or threads");
		options.backend = backend;
	}

	ringway_queue* queue;
	const int error = ringway_create(&options, &queue);
	if (error == -EINVAL)
		return Status::InvalidArgument("ringway", ringway_last_error());
	if (error < 0)
		return Status::NotSupported("ringway", ringway_last_error());
	*created = std::make_unique<ThreadQueue>(this, queue);
	return Status::OK();
}

Status Queues::Start()
{
	std::unique_ptr<ThreadQueue> created;
	const Status status = Create(&created);
	if (!status.ok())
		return status;

	explanation_.resize(ringway_explain(created->get(), nullptr, 0) + 1);
	ringway_explain(created->get(), &explanation_[0], explanation_.size());
	explanation_.pop_back(); // the NUL
	if (options_.log)
		std::fprintf(stderr, "ringway: %s\n", explanation_.c_str());
	released_.push_back(created.get());
	all_.push_back(std::move(created));
	return Status::OK();
}

ThreadQueue* Queues::Acquire()
{
	{
		std::lock_guard<std::mutex> guard(lock_);
		for (size_t i = released_.size(); i-- > 0;) {
			ThreadQueue* const queue = released_[i];

			// Skip a queue on which a read of its last thread is still in flight:
			// another thread may wait for it.
			if (queue->IsIdle()) {
				released_.erase(released_.begin() + static_cast<std::ptrdiff_t>(i));
				return queue;
			}
		}
	}

	// Create a queue without holding the lock, since this takes several system calls.
	std::unique_ptr<ThreadQueue> created;
	const Status status = Create(&created);

	std::lock_guard<std::mutex> guard(lock_);
	if (!status.ok()) {
		if (!reported_)
			std::fprintf(stderr,
			             "ringway: no queue for a thread, which falls back to "
			             "RocksDB's file: %s\n",
			             status.ToString().c_str());
		reported_ = true;
		last_failure_ = status.ToString();
		return nullptr;
	}
	ThreadQueue* queue = created.get();
	all_.push_back(std::move(created));
	return queue;
}

void Queues::Release(ThreadQueue* queue)
{
	if (IsForked())
		return;
	std::lock_guard<std::mutex> guard(lock_);
	released_.push_back(queue);
}

ThreadQueue* Queues::ForThisThread()
{
	if (thread_is_ending || IsForked())
		return nullptr;
	QueuesOfThread::Entry* entry = queues_of_thread.Find(id_);
	if (entry == nullptr)
		entry = queues_of_thread.Add(id_, weak_from_this());
	if (entry->queue == nullptr) {
		const Clock::time_point now = Clock::now();

		if (now < entry->next_attempt)
			return nullptr;
		entry->queue = Acquire();
		entry->next_attempt = now + kRetryInterval;
	}
	return entry->queue;
}

void Queues::CountFallback()
{
	fallbacks_++;
}

void Queues::RecordFailure(const std::string& reason)
{
	std::lock_guard<std::mutex> guard(lock_);
	last_failure_ = reason;
}

FileSystemStats Queues::Stats() const
{
	FileSystemStats sum;

	sum.fallbacks = fallbacks_;
	if (IsForked())
		return sum;
	std::lock_guard<std::mutex> guard(lock_);
	sum.queues = all_.size();
	for (const std::unique_ptr<ThreadQueue>& queue : all_) {
		sum.batches += queue->batches;
		sum.batch_reads += queue->batch_reads;
		sum.async_reads += queue->async_reads;
		sum.aborted += queue->aborted;
	}
	return sum;
}

std::string Queues::Explain() const
{
	if (IsForked())
		return "a forked child: RocksDB's file reads";
	std::lock_guard<std::mutex> guard(lock_);

	if (last_failure_.empty())
		return explanation_;
	return explanation_ +
	       "\nno queue for a thread, which fell back to RocksDB's file: " + last_failure_;
}

} // namespace ringway
