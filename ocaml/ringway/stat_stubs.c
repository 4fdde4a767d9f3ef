/* The stubs of Stat: struct statx becomes a Unix.LargeFile.stats. */
#define _GNU_SOURCE
#define CAML_NAME_SPACE
#include <caml/alloc.h>
#include <caml/bigarray.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

value ringway_ml_stat_constant(value number)
{
	static const int constants[] = {
		sizeof(struct statx), AT_EMPTY_PATH, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS,
	};
	return Val_long(constants[Long_val(number)]);
}

/* Seconds since 1970. As in OCaml's own stat, a time never rounds up to the next second. */
static double seconds(const struct statx_timestamp *time)
{
	double whole = (double)time->tv_sec;
	double sum = whole + (double)time->tv_nsec / 1e9;

	return sum == whole + 1.0 ? nextafter(sum, whole) : sum;
}

/* The position in Unix.file_kind. */
static int kind(unsigned mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR: return 1;
	case S_IFCHR: return 2;
	case S_IFBLK: return 3;
	case S_IFLNK: return 4;
	case S_IFIFO: return 5;
	case S_IFSOCK: return 6;
	default: return 0;
	}
}

value ringway_ml_stat(value buffer)
{
	CAMLparam1(buffer);
	CAMLlocal5(size, atime, mtime, ctime, result);
	struct statx copy, *stat = &copy; /* The buffer may be at any address. */

	memcpy(stat, Caml_ba_data_val(buffer), sizeof *stat);
	size = caml_copy_int64((int64_t)stat->stx_size);
	atime = caml_copy_double(seconds(&stat->stx_atime));
	mtime = caml_copy_double(seconds(&stat->stx_mtime));
	ctime = caml_copy_double(seconds(&stat->stx_ctime));
	result = caml_alloc_small(12, 0);
	Field(result, 0) = Val_long(makedev(stat->stx_dev_major, stat->stx_dev_minor));
	Field(result, 1) = Val_long(stat->stx_ino);
	Field(result, 2) = Val_int(kind(stat->stx_mode));
	Field(result, 3) = Val_int(stat->stx_mode & 07777);
	Field(result, 4) = Val_long(stat->stx_nlink);
	Field(result, 5) = Val_long(stat->stx_uid);
	Field(result, 6) = Val_long(stat->stx_gid);
	Field(result, 7) = Val_long(makedev(stat->stx_rdev_major, stat->stx_rdev_minor));
	Field(result, 8) = size;
	Field(result, 9) = atime;
	Field(result, 10) = mtime;
	Field(result, 11) = ctime;
	CAMLreturn(result);
}
