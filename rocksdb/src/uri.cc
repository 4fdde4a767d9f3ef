// SPDX-License-Identifier: MIT OR Apache-2.0
// The options of a file system as a URI, since that is all that a program which was not recompiled can pass on.
#include <algorithm>
#include <limits>

#include "ringway_rocksdb.h"
#include "uri.h"

namespace ringway {

namespace {

using rocksdb::Status;

const char kParameters[] = "backend, entries, in_flight, threads, faults and log";

Status ParseNumber(const std::string& name, const std::string& text, uint32_t* number)
{
	uint64_t value = 0;
	bool good = !text.empty();

	for (char digit : text) {
		good = good && digit >= '0' && digit <= '9';
		value = value * 10 + static_cast<uint64_t>(digit - '0');
		good = good && value <= std::numeric_limits<uint32_t>::max();
	}
	if (!good)
		return Status::InvalidArgument("ringway: " + name + " is to be a number", text);
	*number = static_cast<uint32_t>(value);
	return Status::OK();
}

Status SetParameter(const std::string& name, const std::string& value, FileSystemOptions* options)
{
	if (name == "backend") {
		options->backend = value;
		return Status::OK(); // whether there is such a one is seen when the queue is made
	}
	if (name == "entries")
		return ParseNumber(name, value, &options->entries);
	if (name == "in_flight")
		return ParseNumber(name, value, &options->in_flight);
	if (name == "threads")
		return ParseNumber(name, value, &options->threads);
	if (name == "faults") {
		options->faults = value;
		return Status::OK();
	}
	if (name == "log") {
		if (value != "0" && value != "1")
			return Status::InvalidArgument("ringway: log is to be 0 or 1", value);
		options->log = value == "1";
		return Status::OK();
	}
	return Status::InvalidArgument("ringway: there is no parameter " + name, std::string("there are ") + kParameters);
}

} // namespace

Status ParseUri(const std::string& uri, FileSystemOptions* options)
{
	const std::string scheme = std::string(kName) + kSeparator;

	*options = FileSystemOptions();
	if (uri.compare(0, scheme.size(), scheme) != 0)
		return Status::InvalidArgument("ringway: a URI is to begin with " + scheme, uri);

	size_t at = scheme.size();
	if (at == uri.size())
		return Status::OK();
	if (uri[at] != '?')
		return Status::InvalidArgument("ringway: nothing but parameters may follow " + scheme + ", as in " + scheme + "?backend=uring",
		                               uri);
	at++;
	while (at < uri.size()) {
		const size_t end = std::min(uri.find('&', at), uri.size());
		const std::string parameter = uri.substr(at, end - at);
		const size_t equals = parameter.find('=');

		if (equals == std::string::npos)
			return Status::InvalidArgument("ringway: a parameter is to be NAME=VALUE", parameter);
		const Status status = SetParameter(parameter.substr(0, equals), parameter.substr(equals + 1), options);
		if (!status.ok())
			return status;
		at = end + 1;
	}
	return Status::OK();
}

} // namespace ringway
