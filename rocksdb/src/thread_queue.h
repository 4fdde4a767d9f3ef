// SPDX-License-Identifier: MIT OR Apache-2.0
// A queue for each thread that reads, made when the thread first needs it. RocksDB has no place for a queue in its interface, and one
// queue for all threads would make them wait for each other.
//
// A queue serves both MultiRead and ReadAsync. It may, for the completions of ReadAsync are told apart by their user data, and
// ringway_multi_read() leaves them alone. (RocksDB shared a ring without that, and reported corruption for years.)
//
// A read begun by one thread may be polled, aborted or deleted by another: RocksDB allows an iterator to move. So each queue has a lock,
// which its own thread practically always finds free: who waits under it lets others have it every few milliseconds. No queue is made for a single issuer. A thread that ends leaves its queue,
// with what is still in flight, to the next thread that needs one.
#ifndef RINGWAY_ROCKSDB_THREAD_QUEUE_H
#define RINGWAY_ROCKSDB_THREAD_QUEUE_H

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ringway.h"
#include "ringway_rocksdb.h"

namespace ringway {

class Queues;

// One queue. Everything but the counters is used with the lock held.
class ThreadQueue {
public:
	// Held by whoever uses the queue.
	class Guard {
	public:
		explicit Guard(ThreadQueue* queue) : queue_(queue) { queue_->Lock(); }
		Guard(const Guard&) = delete;
		Guard& operator=(const Guard&) = delete;
		~Guard() { queue_->lock_.unlock(); }

	private:
		ThreadQueue* const queue_;
	};

	ThreadQueue(Queues* queues, ringway_queue* made) : queues_(queues), queue_(made) {}
	ThreadQueue(const ThreadQueue&) = delete;
	ThreadQueue& operator=(const ThreadQueue&) = delete;
	~ThreadQueue() { ringway_destroy(&queue_); }

	// NULL after Fail(). With the lock held.
	ringway_queue* get() const { return queue_; }

	// Takes the lock, and waits until `flag` is not set. Others have the queue now and then meanwhile: what is waited for may never come
	// from a disk that hangs. False if that does not come: in a forked child, whose parent has what is in flight.
	bool WaitUntilCleared(const bool& flag);

	// The queue cannot be used any more: ends it, so that every read in flight is over, with an error, and the kernel is done with its
	// memory. (In a forked child nobody is told: what is in flight is the parent's.) With the lock held.
	void Fail();

	// Nobody uses it, and nothing is in flight on it. Does not wait.
	bool IsQuiet();

	std::atomic<uint64_t> batches{0};
	std::atomic<uint64_t> batch_reads{0};
	std::atomic<uint64_t> async_reads{0};
	std::atomic<uint64_t> aborted{0};

private:
	void Lock();

	Queues* const queues_;
	std::mutex lock_;
	std::atomic<unsigned> contenders_{0}; // threads that want the lock
	ringway_queue* queue_;
};

// The queues of one file system.
class Queues : public std::enable_shared_from_this<Queues> {
public:
	explicit Queues(const FileSystemOptions& options);
	~Queues();
	Queues(const Queues&) = delete;
	Queues& operator=(const Queues&) = delete;

	// Makes the first queue, so that options which cannot be had are told of at once. It waits for the first thread.
	rocksdb::Status Start();

	// The queue of this thread, valid while this object and the thread live. NULL if none can be had now: io_uring's memory counts
	// against RLIMIT_MEMLOCK, for one. The caller then reads without; the reason is in Explain(), and once on standard error.
	ThreadQueue* ForThisThread();

	// Something was read without a queue.
	void CountWithoutQueue();

	// A queue has failed, and reads are done without it.
	void NoteFailure(const std::string& why);

	FileSystemStats Stats() const;
	std::string Explain() const;

private:
	friend struct QueuesOfThread;

	ThreadQueue* Take();
	void GiveBack(ThreadQueue* queue);
	rocksdb::Status Make(std::unique_ptr<ThreadQueue>* made);

	const FileSystemOptions options_;
	const uint64_t id_; // never that of another, so that a thread's note of its queue cannot be mistaken for a later one's
	mutable std::mutex lock_;
	std::vector<std::unique_ptr<ThreadQueue>> all_;
	std::vector<ThreadQueue*> idle_;
	std::string explained_;
	std::string refused_; // why a thread had to do without; "" if none had
	std::atomic<uint64_t> without_queue_{0};
};

} // namespace ringway

#endif // RINGWAY_ROCKSDB_THREAD_QUEUE_H
