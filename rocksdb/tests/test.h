// SPDX-License-Identifier: MIT OR Apache-2.0
// A small test framework: a list of tests, checks that report file and line, a temporary directory
// and helpers for our file system.
#ifndef RINGWAY_ROCKSDB_TEST_H
#define RINGWAY_ROCKSDB_TEST_H

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ringway_rocksdb.h"

namespace test {

struct Failure : std::runtime_error {
	using std::runtime_error::runtime_error;
};
struct Skip : std::runtime_error {
	using std::runtime_error::runtime_error;
};

[[noreturn]] void Fail(const char* file, int line, const std::string& what);

#define CHECK(condition)                                                                           \
	do {                                                                                       \
		if (!(condition))                                                                  \
			test::Fail(__FILE__, __LINE__, #condition);                                \
	} while (0)

// `expression` is a rocksdb::Status or an IOStatus.
#define CHECK_OK(expression)                                                                       \
	do {                                                                                       \
		const auto& check_status = (expression);                                           \
		if (!check_status.ok())                                                            \
			test::Fail(__FILE__, __LINE__,                                             \
			           #expression ": " + check_status.ToString());                    \
	} while (0)

#define CHECK_EQUAL(left, right)                                                                   \
	do {                                                                                       \
		const auto& check_left = (left);                                                   \
		const auto& check_right = (right);                                                 \
		if (!(check_left == check_right))                                                  \
			test::Fail(__FILE__, __LINE__,                                             \
			           #left " == " #right ": " + test::Show(check_left) + " and " +   \
			               test::Show(check_right));                                   \
	} while (0)

inline std::string Show(const std::string& value)
{
	return value.size() > 200 ? value.substr(0, 200) + "..." : value;
}
template <typename T>
std::string Show(const T& value)
{
	return std::to_string(value);
}

// A test, which runs once for each backend, or once with "" as the backend.
struct Case {
	const char* name;
	void (*run)(const std::string& backend);
	bool each_backend;
};

std::vector<Case>& Cases();

struct Registration {
	Registration(const char* name, void (*run)(const std::string&), bool each_backend)
	{
		Cases().push_back({name, run, each_backend});
	}
};

#define TEST_EACH_BACKEND(name)                                                                    \
	static void name(const std::string& backend);                                              \
	static test::Registration name##_registration(#name, name, true);                          \
	static void name(const std::string& backend)

#define TEST_ONCE(name)                                                                            \
	static void name(const std::string&);                                                      \
	static test::Registration name##_registration(#name, name, false);                         \
	static void name(const std::string&)

// A temporary directory, removed with its contents.
class Directory {
public:
	Directory();
	~Directory();
	Directory(const Directory&) = delete;
	Directory& operator=(const Directory&) = delete;
	const std::string& path() const { return path_; }
	std::string operator/(const std::string& name) const { return path_ + "/" + name; }

private:
	std::string path_;
};

ringway::FileSystemOptions Options(const std::string& backend, const std::string& faults = "");
std::shared_ptr<rocksdb::FileSystem> NewFileSystem(const ringway::FileSystemOptions& options);

ringway::FileSystemStats Stats(const std::shared_ptr<rocksdb::FileSystem>& fs);

// The number of open descriptors of this process.
size_t OpenDescriptors();

// A pseudo-random sequence that depends only on the seed.
class Random {
public:
	explicit Random(uint64_t seed) : state_(seed) {}
	uint64_t Next();
	uint64_t Below(uint64_t limit) { return Next() % limit; }

private:
	uint64_t state_;
};

} // namespace test

#endif // RINGWAY_ROCKSDB_TEST_H
