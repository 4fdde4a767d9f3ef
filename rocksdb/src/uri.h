// SPDX-License-Identifier: MIT OR Apache-2.0
// The scheme of our URIs. The parser, ParseUri(), is declared in the public header.
#ifndef RINGWAY_ROCKSDB_URI_H
#define RINGWAY_ROCKSDB_URI_H

namespace ringway {

constexpr char kScheme[] = "ringway";
constexpr char kSeparator[] = "://";

} // namespace ringway

#endif // RINGWAY_ROCKSDB_URI_H
