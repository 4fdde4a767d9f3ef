// SPDX-License-Identifier: MIT OR Apache-2.0
// Registers "ringway://" with RocksDB, so that the URI names a file system and an Env.
#ifndef RINGWAY_ROCKSDB_REGISTRY_H
#define RINGWAY_ROCKSDB_REGISTRY_H

#include "rocksdb/utilities/object_registry.h"

namespace ringway {

// Adds our factories to `library` and returns how many there are.
int RegisterFactories(rocksdb::ObjectLibrary& library);

} // namespace ringway

#endif // RINGWAY_ROCKSDB_REGISTRY_H
