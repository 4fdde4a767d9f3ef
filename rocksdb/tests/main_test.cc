// SPDX-License-Identifier: MIT OR Apache-2.0
// main() of the tests. Runs the tests whose names contain one of the arguments, or all without
// arguments, each with every backend that is available.
#include <dirent.h>
#include <ftw.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ringway.h"
#include "test.h"

namespace test {

void Fail(const char* file, int line, const std::string& what)
{
	throw Failure(std::string(file) + ":" + std::to_string(line) + ": " + what);
}

std::vector<Case>& Cases()
{
	static std::vector<Case> cases;
	return cases;
}

Directory::Directory()
{
	const char* parent = std::getenv("TMPDIR");

	path_ = std::string(parent == nullptr ? "/tmp" : parent) + "/ringway-rocksdb-XXXXXX";
	if (mkdtemp(&path_[0]) == nullptr)
		throw Failure("mkdtemp " + path_ + ": " + std::strerror(errno));
}

static int Remove(const char* path, const struct stat*, int, struct FTW*)
{
	return remove(path);
}

Directory::~Directory()
{
	nftw(path_.c_str(), Remove, 16, FTW_DEPTH | FTW_PHYS);
}

ringway::FileSystemOptions Options(const std::string& backend, const std::string& faults)
{
	ringway::FileSystemOptions options;

	options.backend = backend;
	options.faults = faults;
	return options;
}

std::shared_ptr<rocksdb::FileSystem> NewFileSystem(const ringway::FileSystemOptions& options)
{
	std::shared_ptr<rocksdb::FileSystem> fs;

	CHECK_OK(ringway::NewFileSystem(options, rocksdb::FileSystem::Default(), &fs));
	return fs;
}

ringway::FileSystemStats Stats(const std::shared_ptr<rocksdb::FileSystem>& fs)
{
	ringway::FileSystemStats stats;

	CHECK(ringway::GetStats(*fs, &stats));
	return stats;
}

size_t OpenDescriptors()
{
	DIR* directory = opendir("/proc/self/fd");
	size_t count = 0;

	CHECK(directory != nullptr);
	while (readdir(directory) != nullptr)
		count++;
	closedir(directory);
	return count;
}

// SplitMix64.
uint64_t Random::Next()
{
	uint64_t z = state_ += 0x9e3779b97f4a7c15;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
	return z ^ (z >> 31);
}

} // namespace test

namespace {

int passed, failed, skipped;

void Run(const test::Case& one, const std::string& backend)
{
	const std::string name = backend.empty() ? one.name : one.name + ("/" + backend);

	try {
		one.run(backend);
		std::printf("%s: passed\n", name.c_str());
		passed++;
	} catch (const test::Skip& skip) {
		std::printf("%s: skipped: %s\n", name.c_str(), skip.what());
		skipped++;
	} catch (const std::exception& failure) {
		std::printf("%s: FAILED: %s\n", name.c_str(), failure.what());
		failed++;
	}
	std::fflush(stdout);
}

bool Wanted(const char* name, int argc, char** argv)
{
	for (int i = 1; i < argc; i++)
		if (std::strstr(name, argv[i]) != nullptr)
			return true;
	return argc == 1;
}

} // namespace

int main(int argc, char** argv)
{
	std::vector<std::string> backends;

	for (const char* backend : {"uring", "kaio", "threads"}) {
		std::shared_ptr<rocksdb::FileSystem> fs;
		const rocksdb::Status status = ringway::NewFileSystem(
		    test::Options(backend), rocksdb::FileSystem::Default(), &fs);

		if (status.ok()) {
			backends.push_back(backend);
			continue;
		}
		std::printf("backend %s: skipped: %s\n", backend, status.ToString().c_str());
		skipped++;
		if (std::getenv("CI") != nullptr)
			failed++;
	}
	for (const test::Case& one : test::Cases()) {
		if (!Wanted(one.name, argc, argv))
			continue;
		if (!one.each_backend)
			Run(one, "");
		else
			for (const std::string& backend : backends)
				Run(one, backend);
	}
	std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
	return failed != 0 || passed == 0 ? 1 : 0;
}
