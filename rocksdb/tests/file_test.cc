// SPDX-License-Identifier: MIT OR Apache-2.0
// Tests of the file system without a database: MultiRead, ReadAsync, Poll and AbortIO, compared
// with RocksDB's own file.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

#include "async_read.h"
#include "file_system.h"
#include "rocksdb/version.h"
#include "test.h"
#include "thread_queue.h"

// How often io_uring_enter(2) fails with ENOMEM from now on.
static std::atomic<int> enomem_count{0};

// Replaces the function of the C library, which ringway calls to enter rings.
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
	if (number == SYS_io_uring_enter && enomem_count.load() > 0) {
		enomem_count--;
		errno = ENOMEM;
		return -1;
	}
	return real(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

// The errno of each pread(2) of RocksDB's own file; 0: none.
static std::atomic<int> pread_errno{0};

// Replaces the function of the C library, which RocksDB's file calls.
extern "C" __attribute__((visibility("default"))) ssize_t pread(int fd, void* buf, size_t length,
                                                                off_t offset)
{
	using Function = ssize_t (*)(int, void*, size_t, off_t);
	static const Function real = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "pread"));

	if (pread_errno.load() != 0) {
		errno = pread_errno.load();
		return -1;
	}
	return real(fd, buf, length, offset);
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
constexpr size_t kTail = 1234; // so that the file does not end at a block boundary
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

// Drops the file from the page cache, so that buffered reads go to the queue.
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

std::unique_ptr<FSRandomAccessFile> Open(const std::shared_ptr<FileSystem>& fs,
                                         const std::string& path, bool direct)
{
	FileOptions options;
	std::unique_ptr<FSRandomAccessFile> file;

	options.use_direct_reads = direct;
	const IOStatus status = fs->NewRandomAccessFile(path, options, &file, nullptr);
	if (direct && !status.ok())
		throw test::Skip("no direct I/O in the directory for temporary files (TMPDIR): " +
		                 status.ToString());
	CHECK_OK(status);
	CHECK_EQUAL(file->use_direct_io(), direct);
	return file;
}

// A file and its contents.
struct Fixture {
	Directory directory;
	const std::string path = directory / "file";
	const std::string contents = Contents();

	Fixture() { Write(path, contents); }
};

// The requests of one MultiRead and their memory.
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

// Reads the ranges and checks their data.
void ReadRanges(FSRandomAccessFile* file, const std::string& contents, const Ranges& ranges)
{
	Batch batch;

	for (const auto& range : ranges)
		batch.Add(range.first, range.second);
	CHECK_OK(
	    file->MultiRead(batch.requests.data(), batch.requests.size(), IOOptions(), nullptr));
	for (const FSReadRequest& request : batch.requests) {
		CHECK_OK(request.status);
		CHECK(request.result == Slice(contents.data() + request.offset, request.len));
	}
}

// `count` ranges of a block, every `step` blocks.
Ranges Blocks(size_t count, size_t step)
{
	Ranges ranges;

	for (size_t i = 0; i < count; i++)
		ranges.emplace_back(i * step * kBlock, kBlock);
	return ranges;
}

// Memory that is not writable: a read into it fails with EFAULT.
char* Unwritable()
{
	static void* const memory =
	    mmap(nullptr, 16 * kBlock, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(memory != MAP_FAILED);
	return static_cast<char*>(memory);
}

// Checks that each request has the status, message and data of RocksDB's own file. The requests
// whose index is in `unwritable` read into memory that is not writable.
void CompareWithBase(const std::shared_ptr<FileSystem>& fs, const Fixture& fixture, bool direct,
                     const Ranges& ranges, std::initializer_list<size_t> unwritable = {})
{
	Batch ours, theirs;
	std::unique_ptr<FSRandomAccessFile> our_file = Open(fs, fixture.path, direct);
	std::unique_ptr<FSRandomAccessFile> their_file =
	    Open(FileSystem::Default(), fixture.path, direct);

	for (const auto& range : ranges) {
		ours.Add(range.first, range.second);
		theirs.Add(range.first, range.second);
	}
	for (size_t i : unwritable)
		ours.requests[i].scratch = theirs.requests[i].scratch = Unwritable();
	CHECK_OK(
	    our_file->MultiRead(ours.requests.data(), ours.requests.size(), IOOptions(), nullptr));
	CHECK_OK(their_file->MultiRead(theirs.requests.data(), theirs.requests.size(), IOOptions(),
	                               nullptr));
	for (size_t i = 0; i < ranges.size(); i++) {
		CHECK_EQUAL(ours.requests[i].status.ToString(),
		            theirs.requests[i].status.ToString());
		CHECK_EQUAL(ours.requests[i].result.size(), theirs.requests[i].result.size());
		CHECK(ours.requests[i].result == theirs.requests[i].result);
	}
}

TEST_EACH_BACKEND(multi_read_matches_rocksdbs_file)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	test::Random random(1);

	for (const bool direct : {true, false}) {
		for (int round = 0; round < 20; round++) {
			Ranges ranges;
			// Including more than RocksDB passes.
			const size_t count = 2 + random.Below(60);

			for (size_t i = 0; i < count; i++)
				ranges.emplace_back(random.Below(kBlocks + 4) * kBlock,
				                    (1 + random.Below(8)) * kBlock);
			if (!direct && round % 2 == 0)
				Evict(fixture.path);
			CompareWithBase(fs, fixture, direct, ranges);
		}
	}
	CHECK_EQUAL(test::Stats(fs).batches, uint64_t{40});
	CHECK_EQUAL(test::Stats(fs).fallbacks, uint64_t{0});
}

TEST_EACH_BACKEND(multi_read_at_the_end_and_with_errors)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	const uint64_t last = kBlocks * kBlock;
	const Ranges ranges = {{last, kBlock},                // partly past the end
	                       {last - kBlock, 3 * kBlock},   // one block and the partial one
	                       {last + kBlock, kBlock},       // begins past the end
	                       {last + 100 * kBlock, kBlock}, // far past it
	                       {0, kBlock}};

	// Errors of the kernel affect only their own requests.
	for (const bool direct : {true, false}) {
		CompareWithBase(fs, fixture, direct, ranges);
		CompareWithBase(fs, fixture, direct, ranges, {1});
		CompareWithBase(fs, fixture, direct, ranges, {0, 4});
		CompareWithBase(fs, fixture, direct, ranges, {0, 1, 2, 3, 4});
	}
	CompareWithBase(fs, fixture, false, {{kSize, 1}, {kSize - 1, 1}, {kSize - 1, 2}, {17, 33}});
	CHECK_EQUAL(test::Stats(fs).batches, uint64_t{9});
	// A single read uses no queue.
	CompareWithBase(fs, fixture, true, {{kBlock, kBlock}});
	CompareWithBase(fs, fixture, false, {{5, 50}});
	CHECK_EQUAL(test::Stats(fs).batches, uint64_t{9});
}

// Programs and RocksDB itself decide by the code of an error what to do.
TEST_ONCE(errors_have_the_codes_of_rocksdbs_file)
{
	const Fixture fixture;
	std::unique_ptr<FSRandomAccessFile> file =
	    Open(FileSystem::Default(), fixture.path, false);
	const Memory memory = Aligned(kBlock);

	for (const int error : {EIO, ENOSPC, ENOENT, ESTALE, EDQUOT}) {
		Slice none;

		pread_errno = error;
		const IOStatus theirs =
		    file->Read(kBlock, 100, IOOptions(), &none, memory.get(), nullptr);
		pread_errno = 0;
		const IOStatus ours = ringway::ReadError(fixture.path, kBlock, 100, -error);
		CHECK_EQUAL(ours.ToString(), theirs.ToString());
		CHECK_EQUAL(static_cast<int>(ours.code()), static_cast<int>(theirs.code()));
		CHECK_EQUAL(static_cast<int>(ours.subcode()), static_cast<int>(theirs.subcode()));
		CHECK_EQUAL(ours.GetRetryable(), theirs.GetRetryable());
	}
}

// A base file system whose files are replaced as soon as they are open.
class Replacing : public rocksdb::FileSystemWrapper {
public:
	Replacing(const std::string& other)
	    : FileSystemWrapper(FileSystem::Default()), other_(other)
	{
	}
	const char* Name() const override { return "Replacing"; }

	IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
	                             std::unique_ptr<FSRandomAccessFile>* result,
	                             rocksdb::IODebugContext* debug) override
	{
		const IOStatus status = target()->NewRandomAccessFile(path, options, result, debug);

		CHECK_EQUAL(rename(other_.c_str(), path.c_str()), 0);
		return status;
	}

private:
	const std::string other_;
};

TEST_EACH_BACKEND(a_file_that_is_replaced_while_it_is_opened_is_the_first_one)
{
	for (const bool direct : {true, false}) {
		const Fixture fixture;
		const std::string other = fixture.directory / "other";
		auto queues = std::make_shared<ringway::Queues>(test::Options(backend));
		const std::shared_ptr<FileSystem> fs = std::make_shared<ringway::FileSystem>(
		    std::make_shared<Replacing>(other), queues);

		CHECK_OK(queues->Start());
		Write(other, std::string(kSize, 'x'));
		Evict(other);
		ReadRanges(Open(fs, fixture.path, direct).get(), fixture.contents, Blocks(4, 3));
		CHECK_EQUAL(queues->Stats().fallbacks, uint64_t{1});
		// The name is that of the second file now.
		Write(other, fixture.contents);
		ReadRanges(Open(fs, fixture.path, direct).get(), std::string(kSize, 'x'),
		           Blocks(4, 3));
	}
}

TEST_EACH_BACKEND(short_reads_are_continued)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(
	    test::Options(backend, "seed=6,short=700,retryable=300,delay=300/4,reorder=500"));

	for (const bool direct : {true, false}) {
		Evict(fixture.path);
		for (int round = 0; round < 5; round++) {
			Ranges ranges;

			for (size_t block = 0; block < 30; block++)
				ranges.emplace_back(2 * block * kBlock, 8 * kBlock);
			CompareWithBase(fs, fixture, direct, ranges);
		}
	}
}

// An asynchronous read and the result that its callback received.
struct Async {
	Memory memory;
	FSReadRequest request;
	void* handle = nullptr;
	IOHandleDeleter delete_handle;
	int called = 0;
	IOStatus status;
	std::string bytes;

	Async(FSRandomAccessFile* file, uint64_t offset, size_t length, char* scratch = nullptr)
	    : memory(Aligned(length))
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
		CHECK(bytes == (request.offset < contents.size()
		                    ? contents.substr(request.offset, request.len)
				    : ""));
	}

	void CheckAborted() const
	{
		CHECK_EQUAL(called, 1);
		CHECK(status.IsAborted());
		CHECK_EQUAL(bytes.size(), size_t{0});
	}
};

using Asyncs = std::vector<std::unique_ptr<Async>>;

Asyncs SubmitReads(FSRandomAccessFile* file, size_t count)
{
	Asyncs reads;

	for (size_t i = 0; i < count; i++)
		reads.push_back(std::make_unique<Async>(file, i * 3 * kBlock, 4 * kBlock));
	return reads;
}

using Indexes = std::initializer_list<size_t>;
const Indexes kAllOfEight = {0, 1, 2, 3, 4, 5, 6, 7};

std::vector<void*> Handles(const Asyncs& reads, Indexes which)
{
	std::vector<void*> handles;

	for (size_t i : which)
		handles.push_back(reads[i]->handle);
	return handles;
}

void Poll(const std::shared_ptr<FileSystem>& fs, const Asyncs& reads, Indexes which)
{
	std::vector<void*> handles = Handles(reads, which);

	CHECK_OK(fs->Poll(handles, handles.size()));
}

void Abort(const std::shared_ptr<FileSystem>& fs, const Asyncs& reads, Indexes which)
{
	std::vector<void*> handles = Handles(reads, which);

	CHECK_OK(fs->AbortIO(handles));
}

// Polls eight reads and checks their data.
void PollAll(const std::shared_ptr<FileSystem>& fs, const Asyncs& reads,
             const std::string& contents)
{
	Poll(fs, reads, kAllOfEight);
	for (const auto& read : reads)
		read->CheckDone(contents);
}

// Runs it on another thread, and throws what it throws.
void OnThread(const std::function<void()>& run)
{
	std::exception_ptr failure;

	std::thread([&] {
		try {
			run();
		} catch (...) {
			failure = std::current_exception();
		}
	}).join();
	if (failure)
		std::rethrow_exception(failure);
}

// Without faults, and with delayed, reordered and short reads.
const char* const kFaults[] = {"", "seed=3,short=300,retryable=200,delay=700/20,reorder=900"};

TEST_EACH_BACKEND(poll_calls_each_callback_once)
{
	const Fixture fixture;

	for (const char* faults : kFaults) {
		const std::shared_ptr<FileSystem> fs =
		    test::NewFileSystem(test::Options(backend, faults));

		for (const bool direct : {true, false}) {
			Evict(fixture.path);
			std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, direct);
			Asyncs reads = SubmitReads(file.get(), 8);

			Poll(fs, reads, {5});
			for (size_t i = 0; i < 8; i++)
				CHECK_EQUAL(reads[i]->called, i == 5 ? 1 : 0);
			Poll(fs, reads, {1, 6, 5});
			PollAll(fs, reads, fixture.contents);
			PollAll(fs, reads, fixture.contents); // calls no callback again
		}
		CHECK_EQUAL(test::Stats(fs).async_reads, uint64_t{16});
	}
}

TEST_EACH_BACKEND(async_reads_report_errors_and_the_end_of_the_file)
{
	const Fixture fixture;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));

	for (const bool direct : {true, false}) {
		std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, direct);
		Async bad(file.get(), 0, kBlock, Unwritable());
		Async good(file.get(), 0, kBlock);
		Async some(file.get(), (kBlocks - 1) * kBlock, 4 * kBlock);
		Async none(file.get(), (kBlocks + 8) * kBlock, kBlock);
		std::vector<void*> handles = {bad.handle, good.handle, some.handle, none.handle};

		CHECK_OK(fs->Poll(handles, 4));
		CHECK_EQUAL(bad.called, 1);
		CHECK(bad.status.IsIOError());
		CHECK_EQUAL(bad.bytes.size(), size_t{0});
		good.CheckDone(fixture.contents);
		some.CheckDone(fixture.contents);
		CHECK_EQUAL(some.bytes.size(), kBlock + kTail);
		none.CheckDone(fixture.contents);
	}
}

TEST_EACH_BACKEND(abort_does_not_affect_other_reads)
{
	const Fixture fixture;

	for (const char* faults : kFaults) {
		const std::shared_ptr<FileSystem> fs =
		    test::NewFileSystem(test::Options(backend, faults));
		std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);

		for (int round = 0; round < 20; round++) {
			Asyncs reads = SubmitReads(file.get(), 8);
			const Indexes aborted = {1, 3, 4, 7}, polled = {0, 2, 5, 6};

			// These complete; the aborted ones may have, but were not polled.
			if (round % 4 == 3)
				Poll(fs, reads, polled);
			Abort(fs, reads, aborted);
			for (size_t i : aborted)
				reads[i]->CheckAborted();
			for (size_t i : polled)
				CHECK_EQUAL(reads[i]->called, round % 4 == 3 ? 1 : 0);
			Abort(fs, reads, aborted); // calls no callback again
			Poll(fs, reads, polled);
			for (size_t i : polled)
				reads[i]->CheckDone(fixture.contents);
			for (size_t i : aborted)
				CHECK_EQUAL(reads[i]->called, 1);
			Abort(fs, reads, polled); // these have been polled
			for (size_t i : polled)
				reads[i]->CheckDone(fixture.contents);
		}
		CHECK_EQUAL(test::Stats(fs).aborted, uint64_t{80});
	}
}

// RocksDB's own MultiRead reported corruption when it reaped the completions of asynchronous reads
// on the same ring.
TEST_EACH_BACKEND(multi_read_does_not_consume_async_reads)
{
	const Fixture fixture;

	for (const char* faults : kFaults) {
		const std::shared_ptr<FileSystem> fs =
		    test::NewFileSystem(test::Options(backend, faults));

		for (const bool direct : {true, false}) {
			std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, direct);

			for (int round = 0; round < 10; round++) {
				Evict(fixture.path);
				Asyncs reads = SubmitReads(file.get(), 8);

				ReadRanges(file.get(), fixture.contents, Blocks(32, 2));
				for (const auto& read : reads)
					CHECK_EQUAL(read->called, 0);
				PollAll(fs, reads, fixture.contents);
			}
		}
		CHECK_EQUAL(test::Stats(fs).batches, uint64_t{20});
		CHECK_EQUAL(test::Stats(fs).fallbacks, uint64_t{0});
	}
}

TEST_EACH_BACKEND(reads_succeed_when_the_queue_is_full)
{
	const Fixture fixture;
	ringway::FileSystemOptions options = test::Options(backend);

	options.in_flight = 4;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(options);
	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	Asyncs reads = SubmitReads(file.get(), 4);

	ReadRanges(file.get(), fixture.contents, Blocks(8, 1));
	for (size_t i = 4; i < 12; i++)
		reads.push_back(std::make_unique<Async>(file.get(), i * kBlock, kBlock));
	for (size_t i = 0; i < reads.size(); i++) {
		CHECK_EQUAL(reads[i]->called, 0);
		Poll(fs, reads, {i});
		reads[i]->CheckDone(fixture.contents);
	}
}

// An iterator may move to another thread, and RocksDB asserts that AbortIO succeeds there.
TEST_EACH_BACKEND(another_thread_may_poll_and_abort)
{
	const Fixture fixture;

	for (const char* faults : kFaults) {
		const std::shared_ptr<FileSystem> fs =
		    test::NewFileSystem(test::Options(backend, faults));
		std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);

		for (int round = 0; round < 10; round++) {
			Asyncs reads = SubmitReads(file.get(), 8);
			std::string failure;
			std::thread other([&] {
				try {
					Poll(fs, reads, {0, 1, 2});
					Abort(fs, reads, {3, 4});
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

			OnThread([&] { reads = SubmitReads(file.get(), 8); });
			PollAll(fs, reads, fixture.contents);
		}
	}
	// Each thread took over the queue of the one before.
	CHECK_EQUAL(test::Stats(fs).queues, uint64_t{1});
}

TEST_EACH_BACKEND(reads_outlive_their_file_and_file_system)
{
	const Fixture fixture;
	std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	Asyncs reads = SubmitReads(file.get(), 8);

	file.reset();
	Poll(fs, reads, {0, 1});
	reads[0]->CheckDone(fixture.contents);
	reads[1]->CheckDone(fixture.contents);
	fs.reset();
	reads.clear(); // waits for the other six
}

TEST_EACH_BACKEND(no_descriptor_leaks)
{
	const Fixture fixture;
	const size_t before = test::OpenDescriptors();

	for (int round = 0; round < 20; round++) {
		std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options(backend));
		std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
		Asyncs reads = SubmitReads(file.get(), 4);

		CompareWithBase(fs, fixture, true, {{0, kBlock}, {kBlock, kBlock}});
		std::thread([&] {
			CompareWithBase(fs, fixture, true, {{0, kBlock}, {kBlock, kBlock}});
		}).join();
		if (round % 2 == 0)
			file.reset();
	}
	CHECK_EQUAL(test::OpenDescriptors(), before);
}

// The limit of descriptors as it was is back when this is destroyed.
struct DescriptorLimit {
	struct rlimit before;

	DescriptorLimit() { CHECK_EQUAL(getrlimit(RLIMIT_NOFILE, &before), 0); }
	~DescriptorLimit() { setrlimit(RLIMIT_NOFILE, &before); }
	static void Zero()
	{
		struct rlimit none;

		CHECK_EQUAL(getrlimit(RLIMIT_NOFILE, &none), 0);
		none.rlim_cur = 0;
		CHECK_EQUAL(setrlimit(RLIMIT_NOFILE, &none), 0);
	}
};

TEST_ONCE(a_thread_without_a_queue_falls_back)
{
	const Fixture fixture;
	std::shared_ptr<FileSystem> fs;
	const rocksdb::Status status =
	    ringway::NewFileSystem(test::Options("uring"), FileSystem::Default(), &fs);

	if (!status.ok())
		throw test::Skip(status.ToString());
	// This thread takes the first queue.
	CompareWithBase(fs, fixture, true, {{0, kBlock}, {kBlock, kBlock}});

	std::unique_ptr<FSRandomAccessFile> file = Open(fs, fixture.path, true);
	OnThread([&] {
		{
			const DescriptorLimit limit;

			limit.Zero(); // no descriptor for a ring
			ReadRanges(file.get(), fixture.contents, Blocks(2, 1));
			const Asyncs polled = SubmitReads(file.get(), 1);
			Poll(fs, polled, {0});
			polled[0]->CheckDone(fixture.contents);
			const Asyncs aborted = SubmitReads(file.get(), 1);
			Abort(fs, aborted, {0});
			aborted[0]->CheckAborted();
			CHECK_EQUAL(test::Stats(fs).fallbacks, uint64_t{3});
			CHECK(ringway::Explain(*fs).find("no queue for a thread") !=
			      std::string::npos);
		}
		// It tries again after a while.
		for (int i = 0; i < 100 && test::Stats(fs).queues < 2; i++) {
			std::this_thread::sleep_for(std::chrono::milliseconds(100));
			Async read(file.get(), 0, kBlock);
		}
	});
	CHECK_EQUAL(test::Stats(fs).queues, uint64_t{2});
}

// Also if a queue failed before, which is not reported.
TEST_ONCE(the_first_thread_without_a_queue_is_reported)
{
	const Directory directory;
	const std::string path = directory / "errors";
	const int saved = dup(STDERR_FILENO);
	const int errors = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	auto queues = std::make_shared<ringway::Queues>(test::Options("uring"));
	const rocksdb::Status status = queues->Start();
	char text[1000] = "";

	if (!status.ok())
		throw test::Skip(status.ToString());
	CHECK(saved >= 0 && errors >= 0);
	CHECK(queues->ForThisThread() != nullptr);
	queues->RecordFailure("a ring has failed");
	CHECK_EQUAL(dup2(errors, STDERR_FILENO), STDERR_FILENO);
	for (int i = 0; i < 2; i++)
		OnThread([&] {
			const DescriptorLimit limit;

			limit.Zero();
			CHECK(queues->ForThisThread() == nullptr);
		});
	CHECK_EQUAL(dup2(saved, STDERR_FILENO), STDERR_FILENO);
	CHECK_EQUAL(lseek(errors, 0, SEEK_SET), off_t{0});
	CHECK(read(errors, text, sizeof text - 1) > 0);
	close(saved);
	close(errors);
	const std::string all = text;
	CHECK_EQUAL(std::count(all.begin(), all.end(), '\n'), std::ptrdiff_t{1});
	CHECK(all.find("no queue for a thread") != std::string::npos);
}

// A FIFO that is open for writing: a read of it waits until the test writes.
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

	// Reads and returns the bytes that are in the FIFO.
	std::string Drain() const
	{
		char bytes[1000];
		const ssize_t length = read(fd, bytes, sizeof bytes);

		return std::string(bytes, length < 0 ? 0 : static_cast<size_t>(length));
	}
};

// Kills the test program if a test hangs.
struct Timeout {
	Timeout() { alarm(60); }
	~Timeout() { alarm(0); }
};

void ReadTwo(const std::shared_ptr<FileSystem>& fs, const Fixture& fixture)
{
	Evict(fixture.path);
	ReadRanges(Open(fs, fixture.path, false).get(), fixture.contents, {{0, 100}, {200, 100}});
}

// A thread that polls a read of the FIFO, which completes when this object is destroyed.
class BlockedPoll {
public:
	BlockedPoll(const std::shared_ptr<FileSystem>& fs, const Asyncs& reads, const Fifo& fifo)
	    : fifo_(fifo)
	{
		thread_ = std::thread([this, fs, handles = Handles(reads, {0})]() mutable {
			polling_ = true;
			status_ = fs->Poll(handles, 1);
		});
		while (!polling_)
			std::this_thread::yield();
		std::this_thread::sleep_for(std::chrono::milliseconds(50));
	}

	~BlockedPoll()
	{
		fifo_.Write(100);
		thread_.join();
		status_.PermitUncheckedError();
	}

private:
	const Fifo& fifo_;
	std::atomic<bool> polling_{false};
	IOStatus status_;
	std::thread thread_;
};

// Reads of 100 bytes of a FIFO in flight, which end when the test writes to it.
struct Hanging : Fixture {
	const Timeout timeout;
	const Fifo fifo;
	const std::shared_ptr<FileSystem> fs;
	const std::unique_ptr<FSRandomAccessFile> pipe = Open(fs, fifo.path, false);
	const std::unique_ptr<FSRandomAccessFile> file = Open(fs, path, false);
	Asyncs reads;

	explicit Hanging(const std::string& backend, const std::string& faults = "")
	    : fs(test::NewFileSystem(test::Options(backend, faults)))
	{
	}
	void Submit() { reads.push_back(std::make_unique<Async>(pipe.get(), 0, 100)); }
	// Other reads succeed.
	void ReadOthers() const
	{
		PollAll(fs, SubmitReads(file.get(), 8), contents);
		ReadTwo(fs, *this);
	}
};

TEST_EACH_BACKEND(a_read_that_hangs_does_not_block_others)
{
	Hanging test(backend);

	test.Submit();
	{
		const BlockedPoll blocked(test.fs, test.reads, test.fifo);

		// The statistics do not wait for the lock of the queue.
		CHECK_EQUAL(test::Stats(test.fs).async_reads, uint64_t{1});
		// Neither another thread is blocked, nor the owner of the queue, whatever it does.
		OnThread([&] { ReadTwo(test.fs, test); });
		test.ReadOthers();
		Abort(test.fs, SubmitReads(test.file.get(), 8), kAllOfEight);
		CHECK_EQUAL(test.reads[0]->called, 0);
	}
	CHECK_EQUAL(test.reads[0]->called, 1);
	CHECK_EQUAL(test.reads[0]->bytes.size(), size_t{100});
}

// The queue of a thread that has ended goes to the next thread, unless a read on it is in flight.
TEST_EACH_BACKEND(a_queue_with_a_read_in_flight_is_not_reused)
{
	Hanging test(backend);

	OnThread([&] { test.Submit(); });
	{
		const BlockedPoll blocked(test.fs, test.reads, test.fifo);

		ReadTwo(test.fs, test);
		CHECK_EQUAL(test::Stats(test.fs).queues, uint64_t{2});
	}
	CHECK_EQUAL(test.reads[0]->called, 1);
}

// Replaces the descriptors of all rings of the process by another file. False if there are none.
bool BreakRings()
{
	bool found = false;

	for (int fd = 3; fd < 1000; fd++) {
		char name[100];
		const ssize_t length =
		    readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), name, sizeof name);

		if (length <= 0 ||
		    std::string(name, static_cast<size_t>(length)) != "anon_inode:[io_uring]")
			continue;
		const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
		CHECK(null >= 0 && dup2(null, fd) == fd && close(null) == 0);
		found = true;
	}
	return found;
}

// How a queue fails: by a fault at the first wait after a read was submitted, by a fault at the
// submission, or because the ring's descriptor is replaced.
const char* const kFailures[] = {"enters=1", "enters=0", "ring"};

void CheckFailure(const std::string& backend, const std::string& failure, int how)
{
	Hanging test(backend, failure == "ring" ? "" : failure);

	test.Submit();
	Async& read = *test.reads[0];
	Evict(test.path);
	if (failure == "ring" && !BreakRings())
		return; // the backend is not io_uring
	for (int round = 0; how == 2 && round < 2; round++)
		ReadTwo(test.fs, test); // a MultiRead on the same queue fails it
	if (how == 0 || how == 2)
		Poll(test.fs, test.reads, {0});
	if (how == 1)
		Abort(test.fs, test.reads, {0});
	if (how < 3) {
		CHECK_EQUAL(read.called, 1);
		CHECK(!read.status.ok());
	}
	read.Delete();

	// RocksDB may free the memory now: no read may write to it or consume data from the FIFO.
	std::memset(read.memory.get(), 0x55, 100);
	test.fifo.Write(50);
	std::this_thread::sleep_for(std::chrono::milliseconds(20));
	CHECK_EQUAL(std::string(read.memory.get(), 100), std::string(100, 0x55));
	CHECK_EQUAL(test.fifo.Drain(), std::string(50, 'x'));

	test.ReadOthers(); // these fall back
	CHECK(test::Stats(test.fs).fallbacks > 0);
	CHECK(failure == "ring" ||
	      ringway::Explain(*test.fs).find("descriptor") != std::string::npos);
}

TEST_EACH_BACKEND(after_a_queue_failed_no_read_writes_to_its_memory)
{
	for (const char* failure : kFailures)
		for (int how = 0; how < 4; how++)
			CheckFailure(backend, failure, how);
}

// ENOMEM is retried; it does not make the queue fail.
TEST_EACH_BACKEND(a_wait_retries_enomem)
{
	Hanging test(backend);
	std::vector<void*> handles;

	test.Submit();
	handles = Handles(test.reads, {0});
	if (backend == "uring")
		enomem_count = 5;
	std::thread writer([&] {
		for (int wait = 0; enomem_count.load() > 0 && wait < 10000; wait++)
			std::this_thread::sleep_for(std::chrono::milliseconds(1));
		test.fifo.Write(100);
	});
	const IOStatus polled = test.fs->Poll(handles, 1);
	writer.join();
	CHECK_EQUAL(enomem_count.exchange(0), 0);
	CHECK_OK(polled);
	CHECK_EQUAL(test.reads[0]->called, 1);
	CHECK_OK(test.reads[0]->status);
	test.reads[0]->Delete();
	ReadTwo(test.fs, test);
	CHECK_EQUAL(test::Stats(test.fs).fallbacks, uint64_t{0});
}

// The reads in flight are the parent's. In the child their handles end with an error, and new reads
// succeed.
TEST_EACH_BACKEND(reads_in_flight_fail_in_a_forked_child)
{
	Hanging test(backend);

	for (int i = 0; i < 4; i++)
		test.Submit();
	const pid_t child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		alarm(20);
		try {
			Poll(test.fs, test.reads, {0, 1});
			Abort(test.fs, test.reads, {2});
			for (const size_t i : {0, 1, 2}) {
				CHECK_EQUAL(test.reads[i]->called, 1);
				CHECK(!test.reads[i]->status.ok());
			}
			for (const auto& read : test.reads)
				read->Delete();
			test.ReadOthers();
		} catch (const test::Failure& failure) {
			std::fprintf(stderr, "child: %s\n", failure.what());
			_exit(1);
		}
		_exit(0);
	}
	int status = -1;
	CHECK_EQUAL(waitpid(child, &status, 0), child);
	CHECK_EQUAL(status, 0);
	// The reads of the parent are not affected.
	test.fifo.Write(400);
	Poll(test.fs, test.reads, {0, 1, 2, 3});
	for (const auto& read : test.reads)
		CHECK_EQUAL(read->bytes.size(), size_t{100});
}

// Another thread holds the lock of the queue while the process forks.
TEST_EACH_BACKEND(reads_in_a_forked_child_of_a_waiting_thread)
{
	Hanging test(backend);

	test.Submit();
	std::thread waiting([&] { Poll(test.fs, test.reads, {0}); });
	std::this_thread::sleep_for(std::chrono::milliseconds(50));
	const pid_t child = fork();
	if (child == 0) {
		alarm(10);
		try {
			test.ReadOthers();
			Abort(test.fs, test.reads, {0});
			test.reads[0]->Delete();
		} catch (const test::Failure& failure) {
			std::fprintf(stderr, "child: %s\n", failure.what());
			_exit(1);
		}
		_exit(0);
	}
	int status = -1;
	const pid_t waited = waitpid(child, &status, 0);
	test.fifo.Write(100);
	waiting.join();
	CHECK_EQUAL(waited, child);
	CHECK_EQUAL(status, 0);
}

// Like RocksDB's own file system when it is built with io_uring: its files return handles of their
// own. With `none_left`, opening a file leaves no descriptor for ours.
class WithHandles : public rocksdb::FileSystemWrapper {
public:
	explicit WithHandles(bool none_left)
	    : FileSystemWrapper(FileSystem::Default()), none_left_(none_left)
	{
	}
	const char* Name() const override { return "PosixFileSystem"; }

	IOStatus NewRandomAccessFile(const std::string& path, const FileOptions& options,
	                             std::unique_ptr<FSRandomAccessFile>* result,
	                             rocksdb::IODebugContext* debug) override
	{
		const IOStatus status = target()->NewRandomAccessFile(path, options, result, debug);

		if (status.ok())
			*result = std::make_unique<File>(std::move(*result));
		if (none_left_)
			DescriptorLimit::Zero();
		return status;
	}

private:
	class File : public rocksdb::FSRandomAccessFileOwnerWrapper {
	public:
		explicit File(std::unique_ptr<FSRandomAccessFile>&& base)
		    : FSRandomAccessFileOwnerWrapper(std::move(base))
		{
		}

		IOStatus ReadAsync(FSReadRequest&, const IOOptions&, AsyncCallback, void*,
		                   void** handle, IOHandleDeleter* delete_handle,
		                   rocksdb::IODebugContext*) override
		{
			*handle = new char[8](); // not an AsyncRead
			*delete_handle = [](void* base_handle) {
				delete[] static_cast<char*>(base_handle);
			};
			return IOStatus::OK();
		}
	};
	const bool none_left_;
};

TEST_EACH_BACKEND(handles_of_the_base_are_never_used)
{
	const Fixture fixture;

	for (const bool mapped : {false, true})
		for (const bool none_left : {false, true}) {
			std::shared_ptr<FileSystem> fs;
			std::unique_ptr<FSRandomAccessFile> file;
			FileOptions options;

			options.use_mmap_reads = mapped;
			CHECK_OK(ringway::NewFileSystem(
			    test::Options(backend), std::make_shared<WithHandles>(none_left), &fs));
			{
				const DescriptorLimit limit;

				CHECK_OK(fs->NewRandomAccessFile(fixture.path, options, &file,
				                                 nullptr));
			}
			ReadRanges(file.get(), fixture.contents, {{0, 100}, {200, 100}});
			const Asyncs polled = SubmitReads(file.get(), 8);
			PollAll(fs, polled, fixture.contents);
			const Asyncs aborted = SubmitReads(file.get(), 8);
			Abort(fs, aborted, kAllOfEight);
			for (const auto& read : aborted)
				read->CheckAborted();
			CHECK_EQUAL(test::Stats(fs).fallbacks > 0, none_left && !mapped);
		}
}

TEST_ONCE(a_missing_file_has_rocksdbs_error)
{
	const Directory directory;
	const std::shared_ptr<FileSystem> fs = test::NewFileSystem(test::Options("threads"));
	std::unique_ptr<FSRandomAccessFile> file;
	const IOStatus ours =
	    fs->NewRandomAccessFile(directory / "none", FileOptions(), &file, nullptr);

	CHECK(file == nullptr);
	CHECK(ours.IsPathNotFound());
	CHECK_EQUAL(ours.ToString(),
	            FileSystem::Default()
	                ->NewRandomAccessFile(directory / "none", FileOptions(), &file, nullptr)
	                .ToString());
}

TEST_ONCE(other_base_file_systems_are_refused)
{
	std::shared_ptr<FileSystem> fs;
	const std::shared_ptr<FileSystem> ours = test::NewFileSystem(test::Options("threads"));

	CHECK(ringway::NewFileSystem({}, nullptr, &fs).IsInvalidArgument());
	CHECK(ringway::NewFileSystem({}, ours, &fs).IsInvalidArgument());
	CHECK(fs == nullptr);
}

} // namespace
