// SPDX-License-Identifier: MIT OR Apache-2.0
// The functions that FileSystem overrides, and those of the public header that concern a file
// system.
#include "file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "async_read.h"
#include "random_access_file.h"
#include "ringway_rocksdb.h"

namespace ringway {

using rocksdb::FileOptions;
using rocksdb::FSRandomAccessFile;
using rocksdb::IODebugContext;
using rocksdb::IOStatus;
using rocksdb::Status;

namespace {

// Opens the file of this name for reading, if it is the one that `wanted` describes. Returns -1 on
// errors.
int OpenSame(const std::string& path, int flags, const struct stat& wanted)
{
	struct stat found;
	int fd;

	do
		fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | flags);
	while (fd < 0 && errno == EINTR);
	if (fd >= 0 && (fstat(fd, &found) != 0 || found.st_dev != wanted.st_dev ||
	                found.st_ino != wanted.st_ino)) {
		close(fd);
		return -1;
	}
	return fd;
}

} // namespace

FileSystem::FileSystem(const std::shared_ptr<rocksdb::FileSystem>& base,
                       std::shared_ptr<Queues> queues)
    : FileSystemWrapper(base), queues_(std::move(queues))
{
}

IOStatus FileSystem::NewRandomAccessFile(const std::string& path, const FileOptions& options,
                                         std::unique_ptr<FSRandomAccessFile>* result,
                                         IODebugContext* debug)
{
	struct stat before;
	const bool is_known = stat(path.c_str(), &before) == 0;
	const IOStatus status = target()->NewRandomAccessFile(path, options, result, debug);

	if (!status.ok())
		return status;

	// The base does not expose its descriptor, so open a second one. If that fails (no
	// descriptor left, or the file was removed or replaced meanwhile), the base's file does
	// every read. It also reads mapped files, which need no system call.
	std::shared_ptr<Descriptor> descriptor;
	if (is_known && !options.use_mmap_reads) {
		const int direct = (*result)->use_direct_io() ? O_DIRECT : 0;
		const int fd = OpenSame(path, direct, before);

		if (fd >= 0)
			descriptor = std::make_shared<Descriptor>(fd, path);
	}
	*result = std::make_unique<RandomAccessFile>(std::move(*result), std::move(descriptor),
	                                             options.use_mmap_reads ? nullptr : queues_);
	return status;
}

IOStatus FileSystem::Poll(std::vector<void*>& handles, size_t)
{
	return AsyncRead::Poll(handles);
}

IOStatus FileSystem::AbortIO(std::vector<void*>& handles)
{
	return AsyncRead::Abort(handles);
}

#if ROCKSDB_MAJOR > 8 || (ROCKSDB_MAJOR == 8 && ROCKSDB_MINOR >= 4)
void FileSystem::SupportedOps(int64_t& operations)
{
	target()->SupportedOps(operations);
	operations |= int64_t{1} << rocksdb::FSSupportedOps::kAsyncIO;
}
#endif

Status CreateFileSystem(const FileSystemOptions& options,
                        const std::shared_ptr<rocksdb::FileSystem>& base,
                        std::unique_ptr<rocksdb::FileSystem>* result)
{
	result->reset();
	if (base == nullptr || base->Name() != std::string("PosixFileSystem"))
		return Status::InvalidArgument("ringway: the base must be FileSystem::Default()",
		                               base == nullptr ? "NULL" : base->Name());

	auto queues = std::make_shared<Queues>(options);
	const Status status = queues->Start();
	if (status.ok())
		*result = std::make_unique<FileSystem>(base, std::move(queues));
	return status;
}

Status NewFileSystem(const FileSystemOptions& options,
                     const std::shared_ptr<rocksdb::FileSystem>& base,
                     std::shared_ptr<rocksdb::FileSystem>* result)
{
	std::unique_ptr<rocksdb::FileSystem> created;
	const Status status = CreateFileSystem(options, base, &created);

	*result = std::move(created);
	return status;
}

bool GetStats(const rocksdb::FileSystem& fs, FileSystemStats* stats)
{
	const FileSystem* ours = fs.CheckedCast<FileSystem>();

	if (ours == nullptr)
		return false;
	*stats = ours->queues().Stats();
	return true;
}

std::string Explain(const rocksdb::FileSystem& fs)
{
	const FileSystem* ours = fs.CheckedCast<FileSystem>();

	return ours == nullptr ? std::string() : ours->queues().Explain();
}

} // namespace ringway
