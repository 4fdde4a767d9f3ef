// SPDX-License-Identifier: MIT OR Apache-2.0
// FairLock: a thread that waits gets the lock before one that has released it and asks again.
#include <thread>

#include "test.h"
#include "thread_queue.h"

namespace {

TEST_ONCE(a_waiting_thread_gets_the_lock_first)
{
	ringway::FairLock lock;

	for (int round = 0; round < 100; round++) {
		bool had_it = false;

		CHECK(lock.try_lock());
		CHECK(!lock.IsWanted());
		CHECK(!lock.try_lock());
		std::thread other([&] {
			lock.lock();
			had_it = true;
			lock.unlock();
		});
		while (!lock.IsWanted())
			std::this_thread::yield();
		lock.unlock();
		lock.lock();
		const bool first = had_it;
		lock.unlock();
		other.join();
		CHECK(first);
	}
}

} // namespace
