// SPDX-License-Identifier: MIT OR Apache-2.0
// The file system by itself: MultiRead, ReadAsync, Poll and AbortIO, beside what RocksDB's own file answers.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "rocksdb/version.h"
#include "test.h"

// So many times io_uring_enter(2) answers ENOMEM.
static std::atomic<int> without_memory{0};

// In the place of the C library's function, through which rings are entered.
extern "C" long syscall(long number, ...) noexcept
{
	using Function = long (*)(long, ...);
	static const Function real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "syscall"));
	long words[6];
	va_list list;

	va_start(list, number);
	for (long& word : words)
		word = va_arg(list, long);
	va_end(list);
	if (number == SYS_io_uring_enter && without_memory.load() > 0) {
		without_memory--;
		errno = ENOMEM;
		return -1;
	}
	return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

namespace {

using rocksdb::FileOptions;
using rocksdb::FileSystem;
using rocksdb::FSRandomAccessFile;
using rocksdb::FSReadRequest;
using rocksdb::IOHandleDeleter;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using test::Directory;

#if ROCKSDB_MAJOR >= 9
using AsyncCallback = std::function<void(FSReadRequest&, void*)>;
#else
using AsyncCallback = std::function<void(const FSReadRequest&, void*)>;
#endif

constexpr size_t kBlock = 4096;
constexpr size_t kBlocks = 64;
constexpr size_t kTail = 1234; // the file does not end on a block
constexpr size_t kSize = kBlock * kBlocks + kTail;

std::string Contents()
{
	std::string bytes(kSize, '\0');

	for (size_t i = 0; i < kSize; i++)
		bytes[i] = static_cast<char>((i / kBlock) * 7 + i % 251);
	return bytes;
}

void Write(const std::string& path, const std::string& bytes)
{
	const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	CHECK(fd >= 0);
	CHECK_EQUAL(write(fd, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
	CHECK_EQUAL(fsync(fd), 0);
	CHECK_EQUAL(close(fd), 0);
}

// Drops what the page cache has, so that buffered reads go to the queue.
void Evict(const std::string& path)
{
	const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	CHECK_EQUAL(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
	CHECK_EQUAL(close(fd), 0);
}

struct Free {
	void operator()(char* memory) const { std::free(memory); }
};
using Memory = std::unique_ptr<char, Free>;

Memory Aligned(size_t size)
{
	void* memory = nullptr;

	CHECK_EQUAL(posix_memalign(&memory, kBlock, size), 0);
	std::memset(memory, 0xee, size);
	return Memory(static_cast<char*>(memory));
}

std::unique_ptr<FSRandomAccessFile> Open(const std::shared_ptr<FileSystem>& fs, const std::string& path, bool direct)
{
	FileOptions options;
	std::unique_ptr<FSRandomAccessFile> file;

	options.use_direct_reads = direct;
	const IOStatus status = fs->NewRandomAccessFile(path, options, &file, nullptr);
	if (direct && !status.ok())
		throw test::Skip("no direct I/O in the directory for temporary files (TMPDIR): " + status.ToString());
	CHECK_OK(status);
	CHECK_EQUAL(file->use_direct_io(), direct);
	return file;
}

// A file, and its contents.
struct Fixture {
	Directory directory;
	const std::string path = directory / "file";
	const std::string contents = Contents();

	Fixture() { Write(path, contents); }
};

// Requests for one MultiRead, with their memory.
struct Batch {
	std::vector<FSReadRequest> requests;
	std::vector<Memory> memory;

	Batch() { requests.reserve(100); }

	void Add(uint64_t offset, size_t length)
	{
		memory.push_back(Aligned(length + 1));
		requests.emplace_back();
		requests.back().offset = offset;
		requests.back().len = length;
		requests.back().scratch = memory.back().get();
	}
};

using Ranges = std::vector<std::pair<uint64_t, size_t>>;

// Memory that nobody may write to, the kernel as little as we.
char* Forbidden()
{
	static void* const memory = mmap(nullptr, 16 * kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return static_cast<char*>(memory);
}

// Each answer is the base's: status and its words, bytes and their number. The requests in `forbidden` are given memory that cannot be
// read into.
void CheckAsBase(const std::shared_ptr<FileSystem>& fs, const Fixture& fixture, bool direct, const Ranges& ranges,
                 std::initializer_list<size_t> forbidden = {})
{
	Batch ours, theirs;
	std::unique_ptr<FSRandomAccessFile> our_file = Open(fs, fixture.path, direct);
	std::unique_ptr<FSRandomAccessFile> their_file = Open(FileSystem::Default(), fixture.path, direct);

	for (const auto& range : ranges) {
		ours.Add(range.first, range.second);
		theirs.Add(range.first, range.second);
	}
	for (size_t i : forbidden)
		ours.requests[i].scratch = theirs.requests[i].scratch = Forbidden();
	CHECK_OK(our_file->MultiRead(ours.requests.data(), ours.requests.size(), IOOptions(), nullptr));
	CHECK_OK(their_file->MultiRead(theirs.requests.data(), theirs.requests.size(), IOOptions(), nullptr));
	for (size_t i = 0; i < ranges.size(); i++) {
		CHECK_EQUAL(ours.requests[i].status.ToString(), theirs.requests[i].status.ToString());
		CHECK_EQUAL(ours.requests[i].result.size(), theirs.requests[i].result.size());
		CHECK(ours.requests[i].result == theirs.requests[i].result);
	}
}

TEST_EACH_BACKEND(multi_read_is_as_the_bases)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	test::Random random(1);

	for (const bool direct : {true, false}) {
		for (int round = 0; round < 20; round++) {
			Ranges ranges;
			const size_t count = 2 + random.Below(60); // more than RocksDB asks for, too

			for (size_t i = 0; i < count; i++)
				ranges.emplace_back(random.Below(kBlocks + 4) * kBlock, (1 + random.Below(8)) * kBlock);
			if (!direct && round % 2 == 0)
				Evict(fixture.path);
			CheckAsBase(fs, fixture, direct, ranges);
		}
	}
	CHECK_EQUAL(test::Stats(fs).batches, uint64_t{40});
	CHECK_EQUAL(test::Stats(fs).without_queue, uint64_t{0});
}

TEST_EACH_BACKEND(multi_read_at_the_end_of_the_file)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	const uint64_t last = kBlocks * kBlock;

	for (const bool direct : {true, false})
		CheckAsBase(fs, fixture, direct,
		            {{last, kBlock},               // some of it is there
		             {last - kBlock, 3 * kBlock},  // a block and some
		             {last + kBlock, kBlock},      // past the end
		             {last + 100 * kBlock, kBlock}, // far past it
		             {0, kBlock}});
	CheckAsBase(fs, fixture, false, {{kSize, 1}, {kSize - 1, 1}, {kSize - 1, 2}, {17, 33}});
}

TEST_EACH_BACKEND(an_error_of_the_kernel_is_only_its_own_requests)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));

	const Ranges ranges = {{0, kBlock}, {kBlock, 2 * kBlock}, {8 * kBlock, kBlock}, {5 * kBlock, kBlock}, {kBlocks * kBlock, kBlock}};

	for (const bool direct : {true, false}) {
		CheckAsBase(fs, fixture, direct, ranges, {1});
		CheckAsBase(fs, fixture, direct, ranges, {0, 4});
		CheckAsBase(fs, fixture, direct, ranges, {0, 1, 2, 3, 4});
	}
	CHECK_EQUAL(test::Stats(fs).batches, uint64_t{6});
}

TEST_EACH_BACKEND(injected_errors_reach_only_their_own_requests)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, "seed=5,errors=200,short=300,reorder=500"));
	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	size_t good = 0, bad = 0;

	for (int round = 0; round < 20; round++) {
		Batch batch;

		for (size_t block = 0; block < 32; block++)
			batch.Add(block * kBlock, 2 * kBlock);
		CHECK_OK(file->MultiRead(batch.requests.data(), batch.requests.size(), IOOptions(), nullptr));
		for (const FSReadRequest& request : batch.requests) {
			if (request.status.ok()) {
				CHECK(request.result == Slice(fixture.contents.data() + request.offset, request.len));
				good++;
			} else {
				CHECK(request.status.IsIOError());
				CHECK_EQUAL(request.result.size(), size_t{0});
				bad++;
			}
		}
	}
	CHECK(good > 400 && bad > 20); // of 640, with 200 in a thousand, and more where a short read is continued
}

TEST_EACH_BACKEND(short_reads_are_continued)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs =
	    test::NewFileSystem(test::Options(backend, "seed=6,short=700,retryable=300,delay=300/4,reorder=500"));

	for (const bool direct : {true, false}) {
		Evict(fixture.path);
		for (int round = 0; round < 5; round++) {
			Ranges ranges;

			for (size_t block = 0; block < 30; block++)
				ranges.emplace_back(2 * block * kBlock, 8 * kBlock);
			CheckAsBase(fs, fixture, direct, ranges);
		}
	}
}

TEST_EACH_BACKEND(a_lone_read_needs_no_queue)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));

	CheckAsBase(fs, fixture, true, {{kBlock, kBlock}});
	CheckAsBase(fs, fixture, false, {{5, 50}});
	CHECK_EQUAL(test::Stats(fs).batches, uint64_t{0});
}

// An asynchronous read, and what was told of it.
struct Async {
	Memory memory;
	FSReadRequest request;
	void* handle = nullptr;
	IOHandleDeleter delete_handle;
	int called = 0;
	IOStatus status;
	std::string bytes;

	Async(FSRandomAccessFile* file, uint64_t offset, size_t length, char* scratch = nullptr) : memory(Aligned(length))
	{
		request.offset = offset;
		request.len = length;
		request.scratch = scratch != nullptr ? scratch : memory.get();
		CHECK_OK(file->ReadAsync(
		    request, IOOptions(),
		    [this](const FSReadRequest& done, void* arg) {
			    CHECK(arg == this);
			    CHECK_EQUAL(done.offset, request.offset);
			    CHECK_EQUAL(done.len, request.len);
			    CHECK(done.scratch == request.scratch);
			    called++;
			    status = done.status;
			    bytes = done.result.ToString();
		    },
		    this, &handle, &delete_handle, nullptr));
		CHECK(handle != nullptr);
		CHECK_EQUAL(called, 0);
	}

	Async(const Async&) = delete;
	Async& operator=(const Async&) = delete;

	~Async() { Delete(); }

	void Delete()
	{
		if (handle != nullptr)
			delete_handle(handle);
		handle = nullptr;
	}

	void CheckDone(const std::string& contents) const
	{
		CHECK_EQUAL(called, 1);
		CHECK_OK(status);
		CHECK(bytes == (request.offset < contents.size() ? contents.substr(request.offset, request.len) : ""));
	}

	void CheckAborted() const
	{
		CHECK_EQUAL(called, 1);
		CHECK(status.IsAborted());
		CHECK_EQUAL(bytes.size(), size_t{0});
	}
};

using Asyncs = std::vector<std::unique_ptr<Async>>;

Asyncs Begin(FSRandomAccessFile* file, size_t count)
{
	Asyncs reads;

	for (size_t i = 0; i < count; i++)
		reads.push_back(std::make_unique<Async>(file, i * 3 * kBlock, 4 * kBlock));
	return reads;
}

std::vector<void*> Handles(const Asyncs& reads, std::initializer_list<size_t> which)
{
	std::vector<void*> handles;

	for (size_t i : which)
		handles.push_back(reads[i]->handle);
	return handles;
}

const std::initializer_list<size_t> kAllOfEight = {0, 1, 2, 3, 4, 5, 6, 7};

// As they are, and as they come on a bad day: late, in another order, in pieces.
const char* const kFaults[] = {"", "seed=3,short=300,retryable=200,delay=700/20,reorder=900"};

TEST_EACH_BACKEND(poll_calls_back_once)
{
	const Fixture fixture;

	for (const char* faults : kFaults) {
		const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, faults));

		for (const bool direct : {true, false}) {
			Evict(fixture.path);
			std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, direct);
			Asyncs reads = Begin(file.get(), 8);

			std::vector<void*> handles = Handles(reads, {5});
			CHECK_OK(fs->Poll(handles, 1));
			for (size_t i = 0; i < 8; i++)
				CHECK_EQUAL(reads[i]->called, i == 5 ? 1 : 0);
			handles = Handles(reads, {1, 6, 5});
			CHECK_OK(fs->Poll(handles, 3));
			handles = Handles(reads, kAllOfEight);
			CHECK_OK(fs->Poll(handles, 8));
			CHECK_OK(fs->Poll(handles, 8)); // nothing is left to be told
			for (const auto& read : reads)
				read->CheckDone(fixture.contents);
		}
		CHECK_EQUAL(test::Stats(fs).async_reads, uint64_t{16});
	}
}

TEST_EACH_BACKEND(async_reads_at_the_end_of_the_file)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));

	for (const bool direct : {true, false}) {
		std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, direct);
		Async some(file.get(), (kBlocks - 1) * kBlock, 4 * kBlock);
		Async none(file.get(), (kBlocks + 8) * kBlock, kBlock);
		std::vector<void*> handles = {some.handle, none.handle};

		CHECK_OK(fs->Poll(handles, 2));
		some.CheckDone(fixture.contents);
		CHECK_EQUAL(some.bytes.size(), kBlock + kTail);
		none.CheckDone(fixture.contents);
	}
}

TEST_EACH_BACKEND(an_async_read_tells_its_error)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	Async bad(file.get(), 0, kBlock, Forbidden());
	Async good(file.get(), 0, kBlock);
	std::vector<void*> handles = {bad.handle, good.handle};

	CHECK_OK(fs->Poll(handles, 2));
	CHECK_EQUAL(bad.called, 1);
	CHECK(bad.status.IsIOError());
	CHECK_EQUAL(bad.bytes.size(), size_t{0});
	good.CheckDone(fixture.contents);
}

TEST_EACH_BACKEND(abort_leaves_bystanders_alone)
{
	const Fixture fixture;

	for (const char* faults : kFaults) {
		const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, faults));
		std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);

		for (int round = 0; round < 20; round++) {
			Asyncs reads = Begin(file.get(), 8);
			std::vector<void*> aborted = Handles(reads, {1, 3, 4, 7});
			std::vector<void*> polled = Handles(reads, {0, 2, 5, 6});

			if (round % 4 == 3) // completed already, but never told
				CHECK_OK(fs->Poll(polled, 4));
			CHECK_OK(fs->AbortIO(aborted));
			for (size_t i : {1, 3, 4, 7})
				reads[i]->CheckAborted();
			if (round % 4 != 3)
				for (size_t i : {0, 2, 5, 6})
					CHECK_EQUAL(reads[i]->called, 0);
			CHECK_OK(fs->AbortIO(aborted)); // nothing is left to be told
			CHECK_OK(fs->Poll(polled, 4));
			for (size_t i : {0, 2, 5, 6})
				reads[i]->CheckDone(fixture.contents);
			for (size_t i : {1, 3, 4, 7})
				CHECK_EQUAL(reads[i]->called, 1);
			CHECK_OK(fs->AbortIO(polled)); // done long ago
			for (size_t i : {0, 2, 5, 6})
				reads[i]->CheckDone(fixture.contents);
		}
		CHECK_EQUAL(test::Stats(fs).aborted, uint64_t{80});
	}
}

// RocksDB's own: a MultiRead that picked up what asynchronous reads on the same ring had completed called it corruption.
TEST_EACH_BACKEND(multi_read_leaves_async_reads_alone)
{
	const Fixture fixture;

	for (const char* faults : kFaults) {
		const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, faults));

		for (const bool direct : {true, false}) {
			std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, direct);

			for (int round = 0; round < 10; round++) {
				Evict(fixture.path);
				Asyncs reads = Begin(file.get(), 8);
				Batch batch;

				for (size_t block = 0; block < 32; block++)
					batch.Add(block * 2 * kBlock, kBlock);
				CHECK_OK(file->MultiRead(batch.requests.data(), batch.requests.size(), IOOptions(), nullptr));
				for (const FSReadRequest& request : batch.requests) {
					CHECK_OK(request.status);
					CHECK(request.result == Slice(fixture.contents.data() + request.offset, request.len));
				}
				for (const auto& read : reads)
					CHECK_EQUAL(read->called, 0);
				std::vector<void*> handles = Handles(reads, kAllOfEight);
				CHECK_OK(fs->Poll(handles, 8));
				for (const auto& read : reads)
					read->CheckDone(fixture.contents);
			}
		}
		CHECK_EQUAL(test::Stats(fs).batches, uint64_t{20});
		CHECK_EQUAL(test::Stats(fs).without_queue, uint64_t{0});
	}
}

TEST_EACH_BACKEND(a_full_queue_makes_room_or_is_gone_round)
{
	const Fixture fixture;
	ringway::FileSystemOptions options = test::Options(backend);

	options.in_flight = 4;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(options);
	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	Asyncs reads = Begin(file.get(), 4);
	Batch batch;

	for (size_t block = 0; block < 8; block++)
		batch.Add(block * kBlock, kBlock);
	CHECK_OK(file->MultiRead(batch.requests.data(), batch.requests.size(), IOOptions(), nullptr));
	for (const FSReadRequest& request : batch.requests) {
		CHECK_OK(request.status);
		CHECK(request.result == Slice(fixture.contents.data() + request.offset, request.len));
	}
	for (size_t i = 4; i < 12; i++)
		reads.push_back(std::make_unique<Async>(file.get(), i * kBlock, kBlock));
	for (const auto& read : reads) {
		std::vector<void*> handles = {read->handle};

		CHECK_EQUAL(read->called, 0);
		CHECK_OK(fs->Poll(handles, 1));
		read->CheckDone(fixture.contents);
	}
}

// Iterators move between threads; RocksDB asserts that AbortIO succeeds.
TEST_EACH_BACKEND(another_thread_may_poll_and_abort)
{
	const Fixture fixture;

	for (const char* faults : kFaults) {
		const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend, faults));
		std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);

		for (int round = 0; round < 10; round++) {
			Asyncs reads = Begin(file.get(), 8);
			std::string failure;
			std::thread other([&] {
				try {
					std::vector<void*> polled = Handles(reads, {0, 1, 2});
					std::vector<void*> aborted = Handles(reads, {3, 4});

					CHECK_OK(fs->Poll(polled, 3));
					CHECK_OK(fs->AbortIO(aborted));
					reads[5]->Delete();
				} catch (const std::exception& error) {
					failure = error.what();
				}
			});
			std::vector<void*> mine = Handles(reads, {6, 7});
			const IOStatus status = fs->Poll(mine, 2);

			other.join();
			CHECK_EQUAL(failure, std::string());
			CHECK_OK(status);
			for (size_t i : {0, 1, 2, 6, 7})
				reads[i]->CheckDone(fixture.contents);
			for (size_t i : {3, 4})
				reads[i]->CheckAborted();
			CHECK_EQUAL(reads[5]->called, 0);
		}
	}
}

TEST_EACH_BACKEND(a_thread_may_end_with_reads_in_flight)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));

	for (int round = 0; round < 20; round++) {
		for (const bool direct : {true, false}) {
			Evict(fixture.path);
			std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, direct);
			Asyncs reads;
			std::string failure;
			std::thread([&] {
				try {
					reads = Begin(file.get(), 8);
				} catch (const std::exception& error) {
					failure = error.what();
				}
			}).join();
			CHECK_EQUAL(failure, std::string());
			std::vector<void*> handles = Handles(reads, kAllOfEight);
			CHECK_OK(fs->Poll(handles, 8));
			for (const auto& read : reads)
				read->CheckDone(fixture.contents);
		}
	}
	CHECK_EQUAL(test::Stats(fs).queues, uint64_t{1}); // each thread took over what the one before had left
}

TEST_EACH_BACKEND(reads_outlive_their_file_and_file_system)
{
	const Fixture fixture;
	std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	Asyncs reads = Begin(file.get(), 8);

	file.reset();
	std::vector<void*> handles = Handles(reads, {0, 1});
	CHECK_OK(fs->Poll(handles, 2));
	reads[0]->CheckDone(fixture.contents);
	reads[1]->CheckDone(fixture.contents);
	fs.reset();
	reads.clear(); // waits for the rest
}

TEST_EACH_BACKEND(many_threads_read_at_once)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	std::vector<std::thread> threads;
	std::atomic<int> good{0};

	for (uint64_t seed = 0; seed < 8; seed++)
		threads.emplace_back([&, seed] {
			test::Random random(seed);

			for (int round = 0; round < 30; round++) {
				Batch batch;
				Async read(file.get(), random.Below(kBlocks) * kBlock, 2 * kBlock);

				for (size_t i = 0; i < 16; i++)
					batch.Add(random.Below(kBlocks) * kBlock, kBlock);
				if (!file->MultiRead(batch.requests.data(), batch.requests.size(), IOOptions(), nullptr).ok())
					return;
				for (const FSReadRequest& request : batch.requests)
					if (!request.status.ok() ||
					    request.result != Slice(fixture.contents.data() + request.offset, request.len))
						return;
				std::vector<void*> handles = {read.handle};
				if (!fs->Poll(handles, 1).ok() || read.called != 1 || !read.status.ok() ||
				    read.bytes != fixture.contents.substr(read.request.offset, read.request.len))
					return;
			}
			good++;
		});
	for (std::thread& thread : threads)
		thread.join();
	CHECK_EQUAL(good.load(), 8);
	CHECK(test::Stats(fs).queues <= 8);
}

TEST_EACH_BACKEND(no_descriptor_is_lost)
{
	const Fixture fixture;
	const size_t before = test::OpenDescriptors();

	for (int round = 0; round < 20; round++) {
		std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
		std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
		Asyncs reads = Begin(file.get(), 4);

		CheckAsBase(fs, fixture, true, {{0, kBlock}, {kBlock, kBlock}});
		std::thread([&] { CheckAsBase(fs, fixture, true, {{0, kBlock}, {kBlock, kBlock}}); }).join();
		if (round % 2 == 0)
			file.reset();
	}
	CHECK_EQUAL(test::OpenDescriptors(), before);
}

TEST_ONCE(a_thread_without_a_queue_reads_all_the_same)
{
	const Fixture fixture;
	std::shared_ptr<FileSystem> fs;
	const rocksdb::Status status = ringway::NewFileSystem(test::Options("uring"), FileSystem::Default(), &fs);

	if (!status.ok())
		throw test::Skip(status.ToString());
	CheckAsBase(fs, fixture, true, {{0, kBlock}, {kBlock, kBlock}}); // the queue that was made first is this thread's

	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	std::string failure;
	std::thread([&] {
		struct rlimit limit, none;

		getrlimit(RLIMIT_NOFILE, &limit);
		none = limit;
		none.rlim_cur = 0; // no descriptor for a ring
		setrlimit(RLIMIT_NOFILE, &none);
		try {
			Batch batch;

			batch.Add(0, kBlock);
			batch.Add(kBlock, kBlock);
			CHECK_OK(file->MultiRead(batch.requests.data(), batch.requests.size(), IOOptions(), nullptr));
			for (const FSReadRequest& request : batch.requests) {
				CHECK_OK(request.status);
				CHECK(request.result == Slice(fixture.contents.data() + request.offset, request.len));
			}
			Async read(file.get(), 0, 3 * kBlock);
			std::vector<void*> handles = {read.handle};
			CHECK_OK(fs->Poll(handles, 1));
			read.CheckDone(fixture.contents);
			Async aborted(file.get(), 0, kBlock);
			handles = {aborted.handle};
			CHECK_OK(fs->AbortIO(handles));
			aborted.CheckAborted();
			CHECK_EQUAL(test::Stats(fs).without_queue, uint64_t{3});
			CHECK(ringway::Explain(*fs).find("no queue for a thread") != std::string::npos);
		} catch (const std::exception& error) {
			failure = error.what();
		}
		setrlimit(RLIMIT_NOFILE, &limit);

		// It asks again by and by.
		for (int i = 0; i < 100 && test::Stats(fs).queues < 2 && failure.empty(); i++) {
			std::this_thread::sleep_for(std::chrono::milliseconds(100));
			Async read(file.get(), 0, kBlock);
		}
	}).join();
	CHECK_EQUAL(failure, std::string());
	CHECK_EQUAL(test::Stats(fs).queues, uint64_t{2});
}

// A FIFO, held open for writing: a read of it waits until somebody writes.
struct Fifo {
	Directory directory;
	const std::string path = directory / "fifo";
	int fd = -1;

	Fifo()
	{
		CHECK_EQUAL(mkfifo(path.c_str(), 0600), 0);
		fd = open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC);
		CHECK(fd >= 0);
	}
	~Fifo() { close(fd); }

	void Write(size_t length) const
	{
		const std::string bytes(length, 'x');

		CHECK_EQUAL(write(fd, bytes.data(), length), static_cast<ssize_t>(length));
	}

	// What nobody has read.
	std::string Rest() const
	{
		char bytes[1000];
		const ssize_t length = read(fd, bytes, sizeof bytes);

		return std::string(bytes, length < 0 ? 0 : static_cast<size_t>(length));
	}
};

// What hangs ends the test program.
struct Limit {
	Limit() { alarm(60); }
	~Limit() { alarm(0); }
};

void ReadTwo(const std::shared_ptr<FileSystem>& fs, const Fixture& fixture)
{
	const std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, false);
	Batch batch;

	Evict(fixture.path);
	batch.Add(0, 100);
	batch.Add(200, 100);
	CHECK_OK(file->MultiRead(batch.requests.data(), 2, IOOptions(), nullptr));
	CHECK(batch.requests[1].result == Slice(fixture.contents.data() + 200, 100));
}

// Polls a read that does not come, in a thread of its own, until somebody writes.
class Stuck {
public:
	Stuck(const std::shared_ptr<FileSystem>& fs, const Asyncs& reads, const Fifo& fifo) : fifo_(fifo)
	{
		thread_ = std::thread([this, fs, handles = Handles(reads, {0})]() mutable {
			polls_ = true;
			status_ = fs->Poll(handles, 1);
		});
		while (!polls_)
			std::this_thread::yield();
		std::this_thread::sleep_for(std::chrono::milliseconds(50));
	}

	~Stuck()
	{
		fifo_.Write(100);
		thread_.join();
		status_.PermitUncheckedError();
	}

private:
	const Fifo& fifo_;
	std::atomic<bool> polls_{false};
	IOStatus status_;
	std::thread thread_;
};

Asyncs BeginOne(FSRandomAccessFile* file, size_t length)
{
	Asyncs reads;

	reads.push_back(std::make_unique<Async>(file, 0, length));
	return reads;
}

TEST_EACH_BACKEND(a_read_that_hangs_blocks_nobody_else)
{
	const Limit limit;
	const Fixture fixture;
	const Fifo fifo;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	const std::unique_ptr<FSRandomAccessFile> pipe = Open(fs, fifo.path, false);
	Asyncs reads = BeginOne(pipe.get(), 100);
	const std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, false);

	{
		const Stuck stuck(fs, reads, fifo);

		// The statistics, which used to wait with the lock that a new thread needs.
		CHECK_EQUAL(test::Stats(fs).async_reads, uint64_t{1});
		// Another thread; and the one whose queue it is on, in each way.
		std::thread([&] { ReadTwo(fs, fixture); }).join();
		ReadTwo(fs, fixture);
		const Asyncs own = Begin(file.get(), 8);
		std::vector<void*> handles = Handles(own, kAllOfEight);
		CHECK_OK(fs->Poll(handles, 8));
		for (const auto& read : own)
			read->CheckDone(fixture.contents);
		const Asyncs aborted = Begin(file.get(), 8);
		handles = Handles(aborted, kAllOfEight);
		CHECK_OK(fs->AbortIO(handles));
		CHECK_EQUAL(reads[0]->called, 0);
	}
	CHECK_EQUAL(reads[0]->called, 1);
	CHECK_EQUAL(reads[0]->bytes.size(), size_t{100});
}

// A thread that ends leaves its queue to the next one, but not while somebody is stuck with it.
TEST_EACH_BACKEND(a_queue_with_a_read_that_hangs_is_not_taken_over)
{
	const Limit limit;
	const Fixture fixture;
	const Fifo fifo;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	const std::unique_ptr<FSRandomAccessFile> pipe = Open(fs, fifo.path, false);
	Asyncs reads;

	std::thread([&] { reads = BeginOne(pipe.get(), 100); }).join();
	{
		const Stuck stuck(fs, reads, fifo);

		ReadTwo(fs, fixture);
		CHECK_EQUAL(test::Stats(fs).queues, uint64_t{2});
	}
	CHECK_EQUAL(reads[0]->called, 1);
}

// Puts another file in the place of the process's rings; true if it has any.
bool BreakRings()
{
	bool found = false;

	for (int fd = 3; fd < 1000; fd++) {
		char name[100];
		const ssize_t length = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);

		if (length <= 0 || std::string(name, static_cast<size_t>(length)) != "anon_inode:[io_uring]")
			continue;
		const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		CHECK(null >= 0 && dup2(null, fd) == fd && close(null) == 0);
		found = true;
	}
	return found;
}

// How a queue fails: at the first wait after a read was begun, or at the submission; by a fault, or since its ring is gone.
const char* const kFailures[] = {"enters=1", "enters=0", "ring"};

void CheckFailure(const std::string& backend, const std::string& failure, int how)
{
	const Limit limit;
	const Fixture fixture;
	const Fifo fifo;
	const std::shared_ptr<FileSystem> fs =
	    test::NewFileSystem(test::Options(backend, failure == "ring" ? "" : failure));
	const std::unique_ptr<FSRandomAccessFile> pipe = Open(fs, fifo.path, false);
	const std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, false);
	Asyncs reads = BeginOne(pipe.get(), 100);
	std::vector<void*> handles = Handles(reads, {0});

	Evict(fixture.path);
	if (failure == "ring" && !BreakRings())
		return; // another backend than io_uring
	if (how == 0)
		CHECK_OK(fs->Poll(handles, 1));
	if (how == 1)
		CHECK_OK(fs->AbortIO(handles));
	if (how == 2) { // with another read of the same queue in flight, which is over too
		ReadTwo(fs, fixture);
		ReadTwo(fs, fixture);
		CHECK_OK(fs->Poll(handles, 1));
	}
	if (how < 3) {
		CHECK_EQUAL(reads[0]->called, 1);
		CHECK(!reads[0]->status.ok());
	}
	reads[0]->Delete();

	// RocksDB may free the memory now: nothing is read into it any more, and nothing taken from the pipe.
	std::memset(reads[0]->memory.get(), 0x55, 100);
	fifo.Write(50);
	std::this_thread::sleep_for(std::chrono::milliseconds(20));
	CHECK_EQUAL(std::string(reads[0]->memory.get(), 100), std::string(100, 0x55));
	CHECK_EQUAL(fifo.Rest(), std::string(50, 'x'));

	// What comes after does without that queue.
	ReadTwo(fs, fixture);
	const Asyncs later = Begin(file.get(), 8);
	handles = Handles(later, kAllOfEight);
	CHECK_OK(fs->Poll(handles, 8));
	for (const auto& read : later)
		read->CheckDone(fixture.contents);
	CHECK(test::Stats(fs).without_queue > 0);
	CHECK(ringway::Explain(*fs).find("descriptor") != std::string::npos || failure == "ring");
}

TEST_EACH_BACKEND(a_queue_that_fails_gives_all_memory_back)
{
	for (const char* failure : kFailures)
		for (int how = 0; how < 4; how++)
			CheckFailure(backend, failure, how);
}

// A kernel that is short of memory for a while is no failure of the queue.
TEST_EACH_BACKEND(a_wait_outlasts_a_shortage_of_memory)
{
	const Limit limit;
	const Fixture fixture;
	const Fifo fifo;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	const std::unique_ptr<FSRandomAccessFile> pipe = Open(fs, fifo.path, false);
	Asyncs reads = BeginOne(pipe.get(), 100);
	std::vector<void*> handles = Handles(reads, {0});

	if (backend == "uring")
		without_memory = 5;
	std::thread writer([&] {
		for (int wait = 0; without_memory.load() > 0 && wait < 10000; wait++)
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		fifo.Write(100);
	});
	const IOStatus polled = fs->Poll(handles, 1);
	writer.join();
	CHECK_EQUAL(without_memory.exchange(0), 0);
	CHECK_OK(polled);
	CHECK_EQUAL(reads[0]->called, 1);
	CHECK_OK(reads[0]->status);
	reads[0]->Delete();
	ReadTwo(fs, fixture);
	CHECK_EQUAL(test::Stats(fs).without_queue, uint64_t{0});
}

// What is in flight is the parent's. The child is told so for each handle, and can read on.
TEST_EACH_BACKEND(a_forked_child_is_told_of_reads_in_flight)
{
	const Limit limit;
	const Fixture fixture;
	const Fifo fifo;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	const std::unique_ptr<FSRandomAccessFile> pipe = Open(fs, fifo.path, false);
	const std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, false);
	Asyncs reads;

	for (int i = 0; i < 4; i++)
		reads.push_back(std::make_unique<Async>(pipe.get(), 0, 100));
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(20);
		try {
			std::vector<void*> polled = Handles(reads, {0, 1});
			CHECK_OK(fs->Poll(polled, 2));
			std::vector<void*> aborted = Handles(reads, {2});
			CHECK_OK(fs->AbortIO(aborted));
			for (const size_t i : {0, 1, 2}) {
				CHECK_EQUAL(reads[i]->called, 1);
				CHECK(!reads[i]->status.ok());
			}
			for (const auto& read : reads)
				read->Delete();
			const Asyncs later = Begin(file.get(), 8);
			std::vector<void*> handles = Handles(later, kAllOfEight);
			CHECK_OK(fs->Poll(handles, 8));
			for (const auto& read : later)
				read->CheckDone(fixture.contents);
			ReadTwo(fs, fixture);
		} catch (const test::Failure& failure) {
			std::fprintf(stderr, "in the child: %s\n", failure.what());
			_exit(1);
		}
		_exit(0);
	}
	int status = -1;
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK_EQUAL(status, 0);
	// The parent's are as before.
	fifo.Write(400);
	std::vector<void*> handles = Handles(reads, {0, 1, 2, 3});
	CHECK_OK(fs->Poll(handles, 4));
	for (const auto& read : reads)
		CHECK_EQUAL(read->bytes.size(), size_t{100});
}

// As RocksDB's own file system when it was built with io_uring: its files give handles of their own. `opens`: how many descriptors are
// left after the base's.
class WithHandles : public rocksdb::FileSystemWrapper {
public:
	explicit WithHandles(bool none_left) : FileSystemWrapper(FileSystem::Default()), none_left_(none_left) {}
	const char* Name() const override { return "PosixFileSystem"; }

	IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options, std::unique_ptr<FSRandomAccessFile>* result,
	                             rocksdb::IODebugContext* debug) override
	{
		const IOStatus status = target()->NewRandomAccessFile(path, options, result, debug);

		if (status.ok())
			*result = std::make_unique<File>(std::move(*result));
		if (none_left_) {
			struct rlimit none;

			CHECK_EQUAL(getrlimit(RLIMIT_NOFILE, &none), 0);
			none.rlim_cur = 0;
			CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
		}
		return status;
	}

private:
	class File : public rocksdb::FSRandomAccessFileOwnerWrapper {
	public:
		explicit File(std::unique_ptr<FSRandomAccessFile>&& base) : FSRandomAccessFileOwnerWrapper(std::move(base)) {}

		IOStatus ReadAsync(FSReadRequest&, const IOOptions&, AsyncCallback, void*, void** handle, IOHandleDeleter* delete_handle,
		                   rocksdb::IODebugContext*) override
		{
			*handle = new char[8](); // nothing of ours
			*delete_handle = [](void* of_the_base) { delete[] static_cast<char*>(of_the_base); };
			return IOStatus::OK();
		}
	};
	const bool none_left_;
};

TEST_EACH_BACKEND(every_handle_is_ours)
{
	const Fixture fixture;

	for (const bool mapped : {false, true})
		for (const bool none_left : {false, true}) {
			std::shared_ptr<FileSystem> fs;
			std::unique_ptr<FSRandomAccessFile> file;
			FileOptions options;
			struct rlimit before;

			options.use_mmap_reads = mapped;
			CHECK_OK(ringway::NewFileSystem(test::Options(backend), std::make_shared<WithHandles>(none_left), &fs));
			CHECK_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0);
			const IOStatus opened = fs->NewRandomAccessFile(fixture.path, options, &file, nullptr);
			CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &before), 0);
			CHECK_OK(opened);

			Batch batch;
			batch.Add(0, 100);
			batch.Add(200, 100);
			CHECK_OK(file->MultiRead(batch.requests.data(), 2, IOOptions(), nullptr));
			CHECK(batch.requests[1].result == Slice(fixture.contents.data() + 200, 100));
			const Asyncs polled = Begin(file.get(), 8);
			std::vector<void*> handles = Handles(polled, kAllOfEight);
			CHECK_OK(fs->Poll(handles, 8));
			for (const auto& read : polled)
				read->CheckDone(fixture.contents);
			const Asyncs aborted = Begin(file.get(), 8);
			handles = Handles(aborted, kAllOfEight);
			CHECK_OK(fs->AbortIO(handles));
			for (const auto& read : aborted)
				read->CheckAborted();
			CHECK_EQUAL(test::Stats(fs).without_queue > 0, none_left && !mapped);
		}
}

TEST_ONCE(mapped_files_are_left_alone)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options("threads"));
	FileOptions options;
	std::unique_ptr<FSRandomAccessFile> file;
	Batch batch;

	options.use_mmap_reads = true;
	CHECK_OK(fs->NewRandomAccessFile(fixture.path, options, &file, nullptr));
	batch.Add(0, 100);
	batch.Add(200, 100);
	CHECK_OK(file->MultiRead(batch.requests.data(), 2, IOOptions(), nullptr));
	CHECK(batch.requests[1].result == Slice(fixture.contents.data() + 200, 100));
	CHECK(batch.requests[1].result.data() != batch.requests[1].scratch); // it is the mapping
	CHECK_EQUAL(test::Stats(fs).batches, uint64_t{0});
}

TEST_ONCE(a_file_that_is_not_there_is_the_bases_error)
{
	const Directory directory;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options("threads"));
	std::unique_ptr<FSRandomAccessFile> file;
	const IOStatus ours = fs->NewRandomAccessFile(directory / "none", FileOptions(), &file, nullptr);

	CHECK(file == nullptr);
	CHECK(ours.IsPathNotFound());
	CHECK_EQUAL(ours.ToString(),
	            FileSystem::Default()->NewRandomAccessFile(directory / "none", FileOptions(), &file, nullptr).ToString());
}

TEST_ONCE(bases_that_keep_files_elsewhere_are_refused)
{
	std::shared_ptr<FileSystem> fs;
	const std::shared_ptr<FileSystem> ours = test::NewFileSystem(test::Options("threads"));

	CHECK(ringway::NewFileSystem({}, nullptr, &fs).IsInvalidArgument());
	CHECK(ringway::NewFileSystem({}, ours, &fs).IsInvalidArgument());
	CHECK(fs == nullptr);
}

} // namespace
