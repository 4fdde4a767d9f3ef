// SPDX-License-Identifier: MIT OR Apache-2.0
// ringway_rocksdb.h: a FileSystem for RocksDB whose MultiRead is one batch and whose ReadAsync is asynchronous.
//
//	std::shared_ptr<rocksdb::FileSystem> fs;
//	rocksdb::Status status = ringway::NewFileSystem({}, rocksdb::FileSystem::Default(), &fs);
//	std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);
//	options.env = env.get();
//
// A program that is not recompiled loads libringway_rocksdb.so with LD_PRELOAD and names "ringway://" where it takes the URI of a file
// system (db_bench: --fs_uri). docs/rocksdb.md tells what to expect.
#ifndef RINGWAY_ROCKSDB_H
#define RINGWAY_ROCKSDB_H

#include <cstdint>
#include <memory>
#include <string>

#include "rocksdb/file_system.h"
#include "rocksdb/status.h"

#define RINGWAY_ROCKSDB_API __attribute__((visibility("default")))

namespace ringway {

// What the queues of a file system are to be; one queue for each thread that reads. 0 and "" mean the default.
struct FileSystemOptions {
	std::string backend;    // "uring", "kaio" or "threads"; "": the best that is granted, or RINGWAY_BACKEND
	uint32_t entries = 0;   // the most reads that one system call submits; 16
	uint32_t in_flight = 0; // the most reads in flight for each thread; 256
	uint32_t threads = 0;   // the most threads of each queue, where the kernel cannot carry a read; ringway's default
	std::string faults;     // for tests of this library alone: what is to go wrong, such as "seed=7,short=500"; see ringway_create(3)
	bool log = false;       // tells on standard error what the queues were granted, and at the end what they did
};

// Makes a file system that reads through ringway and leaves everything else to `base`, which must be RocksDB's own for files of the
// operating system (FileSystem::Default()): reads go to those files by name, so a base that keeps its files in another way would be gone
// round. Wrap this file system in that one instead.
//
// A queue is made here to see whether the options can be had: NotSupported, with the reason, if a backend asked for by name is refused.
RINGWAY_ROCKSDB_API rocksdb::Status NewFileSystem(const FileSystemOptions& options,
                                                  const std::shared_ptr<rocksdb::FileSystem>& base,
                                                  std::shared_ptr<rocksdb::FileSystem>* result);

// The options in a URI such as "ringway://?backend=uring&entries=64": each parameter is a member of FileSystemOptions. InvalidArgument for
// anything else.
RINGWAY_ROCKSDB_API rocksdb::Status ParseUri(const std::string& uri, FileSystemOptions* options);

// What a file system has done so far, over all threads.
struct FileSystemStats {
	uint64_t queues = 0;        // made, one for each thread that reads at the same time
	uint64_t batches = 0;       // MultiReads that went to a queue
	uint64_t batch_reads = 0;   // reads in them
	uint64_t async_reads = 0;   // ReadAsyncs that went to a queue
	uint64_t aborted = 0;       // of these, given up by AbortIO
	uint64_t without_queue = 0; // MultiReads and ReadAsyncs that were done one read at a time, for want of a queue
};

// False if `fs` is none of ours.
RINGWAY_ROCKSDB_API bool GetStats(const rocksdb::FileSystem& fs, FileSystemStats* stats);

// Which backend the queues have, what was refused, why, and the mend; and why a thread had to do without a queue, if one had to.
// "" if `fs` is none of ours.
RINGWAY_ROCKSDB_API std::string Explain(const rocksdb::FileSystem& fs);

} // namespace ringway

#endif // RINGWAY_ROCKSDB_H
