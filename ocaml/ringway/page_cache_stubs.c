/* The stubs of Page_cache. Reads wait for no device and no journal, so they keep the runtime lock,
   and Bytes may be read into directly: nothing moves them meanwhile. */
#define CAML_NAME_SPACE
#include "ringway.h"

#include <caml/bigarray.h>
#include <caml/custom.h>
#include <caml/fail.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>

/* About the bytes of a file of the library. */
#define FILE_SIZE 256

#define File_val(v) (*(struct ringway_file **)Data_custom_val(v))

static void finalize(value file)
{
	ringway_file_destroy(File_val(file));
}

static struct custom_operations operations = {
	.identifier = "ringway.page_cache",
	.finalize = finalize,
	.compare = custom_compare_default,
	.hash = custom_hash_default,
	.serialize = custom_serialize_default,
	.deserialize = custom_deserialize_default,
	.compare_ext = custom_compare_ext_default,
	.fixed_length = custom_fixed_length_default,
};

value ringway_ml_page_cache_create(value fd)
{
	value file = caml_alloc_custom_mem(&operations, sizeof(struct ringway_file *), FILE_SIZE);

	File_val(file) = NULL;
	if (ringway_file_create(Int_val(fd), &File_val(file)) < 0)
		caml_invalid_argument("Ringway.Page_cache.create");
	return file;
}

static intnat cached_read(const struct ringway_file *file, char *first, intnat len, intnat pos)
{
	intnat done = 0;

	while (done < len) {
		int64_t more = ringway_read_now(file, first + done, (size_t)(len - done),
		                                pos < 0 ? RINGWAY_CURRENT_POSITION
		                                        : (uint64_t)(pos + done));

		if (more == 0)
			break;
		if (more < 0)
			return -done - 1;
		done += (intnat)more;
	}
	return done;
}

intnat ringway_ml_cached_read(value file, value buffer, intnat off, intnat len, intnat pos)
{
	return cached_read(File_val(file), (char *)Caml_ba_data_val(buffer) + off, len, pos);
}

value ringway_ml_cached_read_byte(value file, value buffer, value off, value len, value pos)
{
	return Val_long(ringway_ml_cached_read(file, buffer, Long_val(off), Long_val(len),
	                                       Long_val(pos)));
}

intnat ringway_ml_cached_read_bytes(value file, value bytes, intnat off, intnat len, intnat pos)
{
	return cached_read(File_val(file), (char *)Bytes_val(bytes) + off, len, pos);
}

value ringway_ml_cached_read_bytes_byte(value file, value bytes, value off, value len, value pos)
{
	return Val_long(ringway_ml_cached_read_bytes(file, bytes, Long_val(off), Long_val(len),
	                                             Long_val(pos)));
}

value ringway_ml_page_cache_note_written(value file)
{
	ringway_note_written(File_val(file));
	return Val_unit;
}
