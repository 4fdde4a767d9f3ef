/* The stubs of Page_cache. They do not wait for a device, so they keep the runtime lock, and Bytes
   may be read into directly: nothing moves them meanwhile. */
#define _GNU_SOURCE
#define CAML_NAME_SPACE
#include <caml/bigarray.h>
#include <caml/mlvalues.h>

#include <errno.h>
#include <sys/uio.h>

static intnat cached_read(int fd, char *first, intnat len, intnat pos)
{
	intnat done = 0;

	/* A short result means the end of the file or of the cached part; the next call decides: at
	   the end of the file it returns 0. */
	while (done < len) {
		struct iovec iov = { .iov_base = first + done, .iov_len = (size_t)(len - done) };
		ssize_t more = preadv2(fd, &iov, 1, pos < 0 ? -1 : pos + done, RWF_NOWAIT);

		if (more == 0)
			break;
		if (more < 0 && errno == EINTR)
			continue;
		if (more < 0)
			return -done - 1;
		done += more;
	}
	return done;
}

intnat ringway_ml_cached_read(value fd, value buffer, intnat off, intnat len, intnat pos)
{
	return cached_read(Int_val(fd), (char *)Caml_ba_data_val(buffer) + off, len, pos);
}

value ringway_ml_cached_read_byte(value fd, value buffer, value off, value len, value pos)
{
	return Val_long(ringway_ml_cached_read(fd, buffer, Long_val(off), Long_val(len),
	                                       Long_val(pos)));
}

intnat ringway_ml_cached_read_bytes(value fd, value bytes, intnat off, intnat len, intnat pos)
{
	return cached_read(Int_val(fd), (char *)Bytes_val(bytes) + off, len, pos);
}

value ringway_ml_cached_read_bytes_byte(value fd, value bytes, value off, value len, value pos)
{
	return Val_long(ringway_ml_cached_read_bytes(fd, bytes, Long_val(off), Long_val(len),
	                                             Long_val(pos)));
}
