// SPDX-License-Identifier: MIT OR Apache-2.0
// The name under which RocksDB finds the file system; the parser of what follows it is in the public header.
#ifndef RINGWAY_ROCKSDB_URI_H
#define RINGWAY_ROCKSDB_URI_H

namespace ringway {

constexpr char kName[] = "ringway";
constexpr char kSeparator[] = "://";

} // namespace ringway

#endif // RINGWAY_ROCKSDB_URI_H
