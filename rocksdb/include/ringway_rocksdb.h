// SPDX-License-Identifier: MIT OR Apache-2.0
// ringway_rocksdb.h: a FileSystem for RocksDB that submits each MultiRead as one batch and makes
// ReadAsync asynchronous. Everything else is done by RocksDB's own file system.
//
//	std::shared_ptr<rocksdb::FileSystem> fs;
//	rocksdb::Status status = ringway::NewFileSystem({}, rocksdb::FileSystem::Default(), &fs);
//	std::unique_ptr<rocksdb::Env> env = rocksdb::NewCompositeEnv(fs);
//	options.env = env.get();
//
// A program that cannot be recompiled loads libringway_rocksdb.so with LD_PRELOAD and passes the
// URI "ringway://" where it accepts the URI of a file system (db_bench: --fs_uri) or of an Env.
// docs/rocksdb.md describes each way to load it and what to expect.
#ifndef RINGWAY_ROCKSDB_H
#define RINGWAY_ROCKSDB_H

#define RINGWAY_ROCKSDB_API __attribute__((visibility("default")))

#ifdef __cplusplus

#include <cstdint>
#include <memory>
#include <string>

#include "rocksdb/file_system.h"
#include "rocksdb/status.h"

namespace ringway {

// Options of the queues of a file system. Each thread that reads has one queue. 0 and "" mean the
// default.
struct FileSystemOptions {
	// "uring", "kaio" or "threads". "": the value of RINGWAY_BACKEND, or the best one
	// available.
	std::string backend;
	// The most reads that one system call submits. Default: 16.
	uint32_t entries = 0;
	// The most reads in flight for each thread. Default: 256.
	uint32_t in_flight = 0;
	// The most threads of each queue, used for reads that the backend does not support.
	// Default: that of ringway_create(3).
	uint32_t threads = 0;
	// Faults to inject, such as "seed=7,short=500"; see ringway_create(3). Only a library that
	// is built for tests accepts them.
	std::string faults;
	// Prints to standard error which backend and features are in use, and the statistics when
	// the file system is destroyed.
	bool log = false;
};

// Creates a file system that reads through ringway and passes everything else to `base`.
//
// `base` must be RocksDB's own file system, FileSystem::Default(): ringway opens the files by name,
// which would bypass a base that encrypts files or keeps them in memory. Such a base is refused
// with InvalidArgument; wrap the file system that this function returns instead.
//
// The first queue is created here, so that wrong options are reported at once. NotSupported, with
// the reason, if `options.backend` names a backend that is not available.
RINGWAY_ROCKSDB_API rocksdb::Status NewFileSystem(const FileSystemOptions& options,
                                                  const std::shared_ptr<rocksdb::FileSystem>& base,
                                                  std::shared_ptr<rocksdb::FileSystem>* result);

// Parses a URI such as "ringway://?backend=uring&entries=64". Each parameter sets the member of
// FileSystemOptions with the same name. InvalidArgument for anything else.
RINGWAY_ROCKSDB_API rocksdb::Status ParseUri(const std::string& uri, FileSystemOptions* options);

// Counters of a file system since its creation, summed over all threads.
struct FileSystemStats {
	uint64_t queues = 0;  // queues created; threads that read at the same time need one each
	uint64_t batches = 0; // MultiReads submitted to a queue
	uint64_t batch_reads = 0; // reads in those batches
	uint64_t async_reads = 0; // ReadAsyncs submitted to a queue
	uint64_t aborted = 0;     // async_reads cancelled by AbortIO
	uint64_t fallbacks = 0; // MultiReads and ReadAsyncs done by RocksDB's file, without a queue
};

// Returns the counters of `fs`. False if `fs` was not created by ringway.
RINGWAY_ROCKSDB_API bool GetStats(const rocksdb::FileSystem& fs, FileSystemStats* stats);

// Describes, for people to read, which backend and features the queues use, and what is not
// available, why, and how to fix it. If a thread ever had no queue, the last reason is included.
// "" if `fs` was not created by ringway.
RINGWAY_ROCKSDB_API std::string Explain(const rocksdb::FileSystem& fs);

} // namespace ringway

extern "C" {
#endif // __cplusplus

struct rocksdb_env_t;

// For programs that use RocksDB's C API (rocksdb/c.h) and bindings that are built on it: an Env
// that reads through the file system of `uri`, "ringway://" with or without parameters. Release the
// result with rocksdb_env_destroy(). The underlying Env is shared by all calls with the same URI
// and stays valid until the process ends, so the result may be destroyed while databases are open.
//
// On failure the result is NULL and *error is a message, as for the functions of rocksdb/c.h:
// *error must be NULL or a malloc'ed string before the call, and the caller frees it.
RINGWAY_ROCKSDB_API struct rocksdb_env_t* ringway_rocksdb_create_env(const char* uri, char** error);

#ifdef __cplusplus
} // extern "C"
#endif

#endif // RINGWAY_ROCKSDB_H
