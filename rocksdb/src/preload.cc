// SPDX-License-Identifier: MIT OR Apache-2.0
// Registers "ringway://" when the shared object is loaded, so that LD_PRELOAD and a URI are enough
// for a program that is not recompiled. Not part of RocksDB's plugin build, which registers it
// explicitly.
#include "registry.h"

namespace {

// Two copies in one process (one linked, one preloaded) register their own factories, of which
// RocksDB uses one. They share no state.
__attribute__((constructor)) void RegisterOnLoad()
{
	ringway::RegisterFactories(*rocksdb::ObjectLibrary::Default());
}

} // namespace
