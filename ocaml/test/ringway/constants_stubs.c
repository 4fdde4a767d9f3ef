/* For tests: constants and system calls that OCaml's Unix does not have. */
#define _GNU_SOURCE
#define CAML_NAME_SPACE
#include <caml/bigarray.h>
#include <caml/fail.h>
#include <caml/mlvalues.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CONSTANT(name) {#name, name}

static const struct {
	const char *name;
	long long value;
} constants[] = {
	CONSTANT(O_RDONLY), CONSTANT(O_WRONLY), CONSTANT(O_RDWR), CONSTANT(O_CREAT),
	CONSTANT(O_EXCL), CONSTANT(O_TRUNC), CONSTANT(O_APPEND), CONSTANT(O_DIRECT),
	CONSTANT(O_DIRECTORY), CONSTANT(O_NOFOLLOW), CONSTANT(O_TMPFILE), CONSTANT(O_PATH),
	CONSTANT(O_NONBLOCK), CONSTANT(O_NOATIME), CONSTANT(O_SYNC), CONSTANT(AT_REMOVEDIR),
	CONSTANT(AT_SYMLINK_FOLLOW), CONSTANT(AT_SYMLINK_NOFOLLOW), CONSTANT(AT_EMPTY_PATH),
	CONSTANT(AT_STATX_DONT_SYNC), CONSTANT(RENAME_NOREPLACE), CONSTANT(RENAME_EXCHANGE),
	CONSTANT(FALLOC_FL_KEEP_SIZE), CONSTANT(FALLOC_FL_PUNCH_HOLE),
	CONSTANT(FALLOC_FL_ZERO_RANGE), CONSTANT(FALLOC_FL_COLLAPSE_RANGE),
	CONSTANT(FALLOC_FL_INSERT_RANGE), CONSTANT(POSIX_FADV_NORMAL),
	CONSTANT(POSIX_FADV_RANDOM), CONSTANT(POSIX_FADV_SEQUENTIAL),
	CONSTANT(POSIX_FADV_WILLNEED), CONSTANT(POSIX_FADV_DONTNEED),
	CONSTANT(POSIX_FADV_NOREUSE), CONSTANT(SYNC_FILE_RANGE_WAIT_BEFORE),
	CONSTANT(SYNC_FILE_RANGE_WRITE), CONSTANT(SYNC_FILE_RANGE_WAIT_AFTER), CONSTANT(POLLIN),
	CONSTANT(POLLOUT), CONSTANT(POLLERR), CONSTANT(POLLHUP), CONSTANT(POLLPRI),
	CONSTANT(RESOLVE_BENEATH), CONSTANT(RESOLVE_IN_ROOT), CONSTANT(RESOLVE_NO_SYMLINKS),
	CONSTANT(RESOLVE_NO_MAGICLINKS), CONSTANT(RESOLVE_NO_XDEV), CONSTANT(STATX_BASIC_STATS),
	CONSTANT(STATX_SIZE), CONSTANT(STATX__RESERVED),
	CONSTANT(EACCES), CONSTANT(EAGAIN), CONSTANT(EBADF), CONSTANT(EBUSY), CONSTANT(ECANCELED),
	CONSTANT(EEXIST), CONSTANT(EFBIG), CONSTANT(EINVAL), CONSTANT(EISDIR), CONSTANT(ELOOP),
	CONSTANT(EMLINK), CONSTANT(ENAMETOOLONG), CONSTANT(ENODEV), CONSTANT(ENOENT),
	CONSTANT(ENOSPC), CONSTANT(ENOTDIR), CONSTANT(ENOTEMPTY), CONSTANT(ENXIO),
	CONSTANT(EOPNOTSUPP), CONSTANT(EOVERFLOW), CONSTANT(EPERM), CONSTANT(EPIPE),
	CONSTANT(ESPIPE), CONSTANT(ETIMEDOUT), CONSTANT(ETXTBSY), CONSTANT(EXDEV), CONSTANT(EIO),
};

value ringway_test_constant(value name)
{
	for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
		if (strcmp(constants[i].name, String_val(name)) == 0)
			return Val_long(constants[i].value);
	caml_failwith("unknown constant");
}

value ringway_test_seteuid(value uid)
{
	return Val_long(seteuid((uid_t)Long_val(uid)));
}

value ringway_test_changes_access_times(value fd)
{
	struct statfs type;
	struct statvfs mount;

	return Val_bool(fstatfs(Int_val(fd), &type) == 0 && type.f_type == 0xef53 &&
	                fstatvfs(Int_val(fd), &mount) == 0 &&
	                (mount.f_flag & (ST_NOATIME | ST_RDONLY)) == 0);
}

value ringway_test_end_is_unknown(value unit)
{
	struct utsname name;
	int minor = 0;

	(void)unit;
	return Val_bool(uname(&name) == 0 && sscanf(name.release, "5.%d.", &minor) == 1 &&
	                (minor == 9 || minor == 10));
}

/* A negative size is no limit. */
value ringway_test_limit_files(value size)
{
	struct rlimit limit;
	rlim_t wanted = Long_val(size) < 0 ? RLIM_INFINITY : (rlim_t)Long_val(size);

	getrlimit(RLIMIT_FSIZE, &limit);
	limit.rlim_cur = wanted < limit.rlim_max ? wanted : limit.rlim_max;
	return Val_long(setrlimit(RLIMIT_FSIZE, &limit));
}

value ringway_test_close_on_exec(value fd)
{
	return Val_bool(fcntl(Int_val(fd), F_GETFD) == FD_CLOEXEC);
}

/* The system calls of some operations: their result, or minus errno. */

value ringway_test_transfer(value writes, value fd, value buffers, value offset)
{
	struct iovec iov[16];
	int count = (int)Wosize_val(buffers);
	ssize_t result;

	if (count > 16)
		caml_failwith("too many buffers");
	for (int i = 0; i < count; i++) {
		iov[i].iov_base = Caml_ba_data_val(Field(buffers, i));
		iov[i].iov_len = (size_t)Caml_ba_array_val(Field(buffers, i))->dim[0];
	}
	if (Bool_val(writes))
		result = pwritev(Int_val(fd), iov, count, Long_val(offset));
	else
		result = preadv(Int_val(fd), iov, count, Long_val(offset));
	return Val_long(result < 0 ? -errno : result);
}

value ringway_test_fallocate(value fd, value mode, value offset, value length)
{
	int result = fallocate(Int_val(fd), Int_val(mode), Long_val(offset), Long_val(length));

	return Val_long(result < 0 ? -errno : result);
}

value ringway_test_ftruncate(value fd, value length)
{
	return Val_long(ftruncate(Int_val(fd), Long_val(length)) < 0 ? -errno : 0);
}

value ringway_test_open(value path, value flags, value mode)
{
	int fd = open(String_val(path), Int_val(flags) | O_CLOEXEC, Int_val(mode));

	return Val_long(fd < 0 ? -errno : fd);
}
