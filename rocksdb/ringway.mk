# The plugin for RocksDB's make and CMake builds. Link this directory into RocksDB's tree as
# plugin/ringway and build with ROCKSDB_PLUGINS=ringway; docs/rocksdb.md has the commands.
#
# libringway (ringway.h, libringway.a, ringway.pc) must be installed where pkg-config finds it. The
# plugin links libringway.a; ringway_LIBRARY=-lringway links the shared library.
#
# RocksDB's CMake build reads _FUNC from this file, and the rest from CMakeLists.txt. It would
# compile the sources twice if it recognised them here too, which ":=" prevents.

ringway_SOURCES := src/async_read.cc src/file_system.cc src/random_access_file.cc
ringway_SOURCES += src/registry.cc src/thread_queue.cc src/uri.cc
ringway_HEADERS := include/ringway_rocksdb.h
ringway_FUNC = ringway_rocksdb_register

ringway_LIBRARY ?= $(shell pkg-config --variable=libdir ringway)/libringway.a
ringway_CXXFLAGS := -Iplugin/ringway/include $(shell pkg-config --cflags ringway)
# Its threads may outlive the file system, so what it is linked into stays in memory.
ringway_LDFLAGS := $(ringway_LIBRARY) -lpthread -ldl -lm -Wl,-z,nodelete
