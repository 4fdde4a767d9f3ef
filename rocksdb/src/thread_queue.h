// SPDX-License-Identifier: MIT OR Apache-2.0
// ThreadQueue, a queue with a lock, and Queues, the queues of one file system.
//
// Each thread that reads gets a queue of its own when it first needs one. RocksDB's interface has
// no place to keep a queue, and threads that share one would wait for each other.
//
// MultiRead and ReadAsync use the same queue. This is safe because the completions of ReadAsync are
// recognised by their user data and ringway_multi_read() does not consume them. (RocksDB's own
// MultiRead consumed the completions of other reads on a shared ring and reported corruption.)
//
// RocksDB may poll, abort or delete a read on another thread than the one that started it, because
// iterators may move between threads. So each queue has a lock, which is almost always free. A
// thread that waits for a read releases the lock every few milliseconds if other threads want it.
// For the same reason no queue is created with RINGWAY_SINGLE_ISSUER. When a thread ends, its
// queue, with any reads in flight, goes to the next thread that needs one.
#ifndef RINGWAY_ROCKSDB_THREAD_QUEUE_H
#define RINGWAY_ROCKSDB_THREAD_QUEUE_H

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ringway.h"
#include "ringway_rocksdb.h"

namespace ringway {

class Queues;

// How many forks have made this process, counted from the load of this library. A forked child does
// not take the locks of its parent: a thread that it does not have may hold them for ever.
uint64_t ForkGeneration();

// A lock that threads get in the order in which they ask for it. std::mutex is not fair: a thread
// that releases it and takes it again would keep it from those that sleep.
class FairLock {
public:
	void lock()
	{
		std::unique_lock<std::mutex> guard(mutex_);
		const uint64_t ticket = next_++;

		turn_.wait(guard, [&] { return ticket == serving_; });
	}

	bool try_lock()
	{
		std::lock_guard<std::mutex> guard(mutex_);
		const bool free = next_ == serving_;

		next_ += free ? 1 : 0;
		return free;
	}

	void unlock()
	{
		std::lock_guard<std::mutex> guard(mutex_);

		serving_++;
		turn_.notify_all();
	}

	// The holder asks whether another thread waits for the lock.
	bool IsWanted()
	{
		std::lock_guard<std::mutex> guard(mutex_);

		return next_ - serving_ > 1;
	}

private:
	std::mutex mutex_;
	std::condition_variable turn_;
	uint64_t next_ = 0;    // the ticket of the next thread
	uint64_t serving_ = 0; // the ticket of the thread that holds the lock, or may take it
};

// A queue and its lock. Everything but the counters is accessed with the lock held.
class ThreadQueue {
public:
	// Holds the lock of a queue.
	class Guard {
	public:
		explicit Guard(ThreadQueue* queue) : queue_(queue) { queue_->lock_->lock(); }
		Guard(const Guard&) = delete;
		Guard& operator=(const Guard&) = delete;
		~Guard() { queue_->lock_->unlock(); }

	private:
		ThreadQueue* const queue_;
	};

	ThreadQueue(Queues* queues, ringway_queue* queue) : queues_(queues), queue_(queue) {}
	ThreadQueue(const ThreadQueue&) = delete;
	ThreadQueue& operator=(const ThreadQueue&) = delete;
	~ThreadQueue()
	{
		ringway_destroy(&queue_);
		// Threads of the parent that wait for the lock are not here, and destroying it
		// would wait for them.
		if (IsForked())
			lock_.release();
	}

	// The queue itself; NULL after Fail(). The caller holds the lock.
	ringway_queue* get() const { return queue_; }

	// Takes the lock and reaps completions until `flag` is false. Other threads can use the
	// queue in between, because a completion from a disk that hangs may never arrive. Returns
	// false if `flag` can no longer change: in a forked child, whose parent owns the reads in
	// flight.
	bool WaitUntilCleared(const bool& flag);

	// Destroys a queue that can no longer be used. Every read in flight completes with an
	// error, and the kernel no longer accesses its memory. (In a forked child no read
	// completes: the reads in flight are the parent's.) The caller holds the lock.
	void Fail();

	// In a forked child of the process that created the queue: its reads are the parent's, and
	// its lock may never be released.
	bool IsForked() const { return generation_ != ForkGeneration(); }

	// True if no thread holds the lock and no read is in flight. Does not wait.
	bool IsIdle();

	std::atomic<uint64_t> batches{0};
	std::atomic<uint64_t> batch_reads{0};
	std::atomic<uint64_t> async_reads{0};
	std::atomic<uint64_t> aborted{0};

private:
	Queues* const queues_;
	const uint64_t generation_ = ForkGeneration();
	std::unique_ptr<FairLock> lock_ = std::make_unique<FairLock>();
	ringway_queue* queue_;
};

// The queues of one file system.
class Queues : public std::enable_shared_from_this<Queues> {
public:
	explicit Queues(const FileSystemOptions& options);
	~Queues();
	Queues(const Queues&) = delete;
	Queues& operator=(const Queues&) = delete;

	// Creates the first queue, so that wrong options are reported at once. The first thread
	// that reads gets it.
	rocksdb::Status Start();

	// The queue of the calling thread. It is valid while this object and the thread exist. NULL
	// in a forked child, and if no queue can be created now, for example because of
	// RLIMIT_MEMLOCK, which limits the memory of rings. The caller then falls back to RocksDB's
	// file. Explain() has the reason, and the first one is printed to standard error.
	ThreadQueue* ForThisThread();

	// Counts a MultiRead or ReadAsync that was done without a queue.
	void CountFallback();

	// Records why a queue has failed, for Explain().
	void RecordFailure(const std::string& reason);

	FileSystemStats Stats() const;
	std::string Explain() const;

private:
	friend struct QueuesOfThread;

	bool IsForked() const { return generation_ != ForkGeneration(); }

	ThreadQueue* Acquire();
	void Release(ThreadQueue* queue);
	rocksdb::Status Create(std::unique_ptr<ThreadQueue>* created);

	const FileSystemOptions options_;
	const uint64_t
	    id_; // unique in the process, so that a thread never confuses two file systems
	const uint64_t generation_ = ForkGeneration();
	mutable std::mutex lock_; // not taken in a forked child
	std::vector<std::unique_ptr<ThreadQueue>> all_;
	std::vector<ThreadQueue*> released_; // queues without a thread
	std::string explanation_;
	std::string last_failure_; // why a thread last had no queue; "" if each has always had one
	bool reported_ = false;    // that a thread has no queue
	std::atomic<uint64_t> fallbacks_{0};
};

} // namespace ringway

#endif // RINGWAY_ROCKSDB_THREAD_QUEUE_H
