// SPDX-License-Identifier: MIT OR Apache-2.0
// ParseUri(): the options of a file system in a URI, the only form in which a program that is not
// recompiled can pass them.
#include <algorithm>
#include <limits>

#include "ringway_rocksdb.h"
#include "uri.h"

namespace ringway {

namespace {

using rocksdb::Status;

const char kParameters[] = "backend, entries, in_flight, threads, faults or log";

Status ParseNumber(const std::string& name, const std::string& text, uint32_t* number)
{
	uint64_t value = 0;
	bool valid = !text.empty();

	for (char digit : text) {
		valid = valid && digit >= '0' && digit <= '9';
		value = value * 10 + static_cast<uint64_t>(digit - '0');
		valid = valid && value <= std::numeric_limits<uint32_t>::max();
	}
	if (!valid)
		return Status::InvalidArgument(
		    "ringway: " + name + " must be a number below 4294967296", text);
	*number = static_cast<uint32_t>(value);
	return Status::OK();
}

Status SetParameter(const std::string& name, const std::string& value, FileSystemOptions* options)
{
	if (name == "backend") {
		options->backend = value;
		return Status::OK(); // checked when the first queue is created
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
			return Status::InvalidArgument("ringway: log must be 0 or 1", value);
		options->log = value == "1";
		return Status::OK();
	}
	return Status::InvalidArgument("ringway: unknown parameter " + name,
	                               std::string("use ") + kParameters);
}

} // namespace

Status ParseUri(const std::string& uri, FileSystemOptions* options)
{
	const std::string prefix = std::string(kScheme) + kSeparator;

	*options = FileSystemOptions();
	if (uri.compare(0, prefix.size(), prefix) != 0)
		return Status::InvalidArgument("ringway: the URI must begin with " + prefix, uri);

	size_t at = prefix.size();
	if (at == uri.size())
		return Status::OK();
	if (uri[at] != '?')
		return Status::InvalidArgument("ringway: only parameters may follow " + prefix +
		                                   ", as in " + prefix + "?backend=uring",
		                               uri);
	at++;
	while (at < uri.size()) {
		const size_t end = std::min(uri.find('&', at), uri.size());
		const std::string parameter = uri.substr(at, end - at);
		const size_t equals = parameter.find('=');

		if (equals == std::string::npos)
			return Status::InvalidArgument("ringway: a parameter must be NAME=VALUE",
			                               parameter);
		const Status status = SetParameter(parameter.substr(0, equals),
		                                   parameter.substr(equals + 1), options);
		if (!status.ok())
			return status;
		at = end + 1;
	}
	return Status::OK();
}

} // namespace ringway
