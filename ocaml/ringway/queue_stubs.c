/*
 * The stubs of Buffer, Operation and Queue. Statx and the page cache have files of their own.
 *
 * A stub that may block copies what it needs out of OCaml values first and touches none while the
 * runtime lock is released. Stubs that OCaml declares [@@noalloc] neither allocate nor raise nor
 * release the lock.
 */
#define _GNU_SOURCE
#define CAML_NAME_SPACE
#include "ringway.h"

#include <caml/alloc.h>
#include <caml/bigarray.h>
#include <caml/custom.h>
#include <caml/fail.h>
#include <caml/memory.h>
#include <caml/mlvalues.h>
#include <caml/threads.h>
#include <caml/unixsupport.h>
#include <caml/version.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#if OCAML_VERSION < 41400
#define caml_unix_error_of_code unix_error_of_code
#endif

/* Results that are not an errno; queue.ml knows them. */
#define IN_USE (-10000)
#define CLOSED (-10001)

/* Completions that one reap takes from the library. */
#define BATCH 256

#define SLOT_BITS 24
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
/* An op is an OCaml int: 24 bits slot, 38 bits generation. */
#define GENERATION_MASK ((UINT64_C(1) << (62 - SLOT_BITS)) - 1)

/* The operation of a slot. */
struct slot {
	int64_t id; /* of the C library; 0 if the slot is free */
	uint64_t generation;
};

struct queue {
	struct ringway_queue *queue; /* NULL after close */
	/* Nonzero while a thread is inside a stub, possibly without the runtime lock. */
	atomic_int in_use;
	uint32_t capacity;
	uint32_t free_count;
	uint32_t *free; /* a stack of slot numbers */
	struct slot *slots;
	/* Completions that were reaped and not taken: batch[next] to batch[count - 1]. */
	uint32_t next, count;
	struct ringway_completion batch[BATCH];
};

#define Queue_val(v) (*(struct queue **)Data_custom_val(v))

static void free_queue(struct queue *queue)
{
	free(queue->free);
	free(queue->slots);
	free(queue);
}

/* Queue.finalise closes a queue that the program forgot; only memory is left here. */
static void finalize_handle(value handle)
{
	struct queue *queue = Queue_val(handle);

	if (queue != NULL && queue->queue == NULL)
		free_queue(queue);
}

static struct custom_operations handle_operations = {
	"org.ringway.queue",
	finalize_handle,
	custom_compare_default,
	custom_hash_default,
	custom_serialize_default,
	custom_deserialize_default,
	custom_compare_ext_default,
	custom_fixed_length_default,
};

/* Begins a use of the queue: 0, IN_USE or CLOSED. */
static int begin(struct queue *queue)
{
	if (atomic_exchange_explicit(&queue->in_use, 1, memory_order_acquire) != 0)
		return IN_USE;
	if (queue->queue != NULL)
		return 0;
	atomic_store_explicit(&queue->in_use, 0, memory_order_release);
	return CLOSED;
}

static void end(struct queue *queue)
{
	atomic_store_explicit(&queue->in_use, 0, memory_order_release);
}

/* ---- Buffer ------------------------------------------------------------------------------------ */

intnat ringway_ml_misalignment(value buffer, intnat align)
{
	return (intnat)((uintptr_t)Caml_ba_data_val(buffer) & (uintptr_t)(align - 1));
}

value ringway_ml_misalignment_byte(value buffer, value align)
{
	return Val_long(ringway_ml_misalignment(buffer, Long_val(align)));
}

value ringway_ml_to_bytes(value src, intnat src_off, value dst, intnat dst_off, intnat len)
{
	memcpy(Bytes_val(dst) + dst_off, (char *)Caml_ba_data_val(src) + src_off, (size_t)len);
	return Val_unit;
}

value ringway_ml_to_bytes_byte(value src, value src_off, value dst, value dst_off, value len)
{
	return ringway_ml_to_bytes(src, Long_val(src_off), dst, Long_val(dst_off), Long_val(len));
}

value ringway_ml_from_bytes(value src, intnat src_off, value dst, intnat dst_off, intnat len)
{
	memcpy((char *)Caml_ba_data_val(dst) + dst_off, Bytes_val(src) + src_off, (size_t)len);
	return Val_unit;
}

value ringway_ml_from_bytes_byte(value src, value src_off, value dst, value dst_off, value len)
{
	return ringway_ml_from_bytes(src, Long_val(src_off), dst, Long_val(dst_off), Long_val(len));
}

/* ---- Operation --------------------------------------------------------------------------------- */

value ringway_ml_constant(value number)
{
	static const int constants[] = {
		AT_FDCWD, O_DIRECT, O_CLOEXEC, AT_REMOVEDIR, AT_SYMLINK_FOLLOW,
		POLLIN, POLLOUT, POLLERR, POLLHUP, IOV_MAX, sizeof(struct statx),
		ECANCELED,
	};
	assert(Long_val(number) < (intnat)(sizeof constants / sizeof *constants));
	return Val_long(constants[Long_val(number)]);
}

value ringway_ml_open_flag(value flag)
{
	/* In the order of Unix.open_flag. O_SHARE_DELETE and O_KEEPEXEC mean nothing here. */
	static const int flags[] = {
		O_RDONLY, O_WRONLY, O_RDWR, O_NONBLOCK, O_APPEND, O_CREAT, O_TRUNC, O_EXCL,
		O_NOCTTY, O_DSYNC, O_SYNC, O_RSYNC, 0, O_CLOEXEC, 0,
	};
	assert(Long_val(flag) < (intnat)(sizeof flags / sizeof *flags));
	return Val_long(flags[Long_val(flag)]);
}

value ringway_ml_opcode_name(value opcode)
{
	return caml_copy_string(ringway_opcode_name((unsigned)Long_val(opcode)));
}

/* The fields of Operation.t, in its order. */
enum {
	OPCODE, FLAGS, FD, FD2, OFFSET, LENGTH, BUFFER, START, BUFFERS, PATH, PATH2, OP_FLAGS, MODE,
	RESOLVE, TIMEOUT_NS,
};

/* Translates an Operation.t. `iov` has room for IOV_MAX elements. The result points into OCaml's
   heap and is valid until the next allocation. */
static struct ringway_operation fill(value operation, struct iovec *iov)
{
	unsigned opcode = (unsigned)Long_val(Field(operation, OPCODE));
	struct ringway_operation raw =
		ringway_prep((enum ringway_opcode)opcode, (int)Long_val(Field(operation, FD)), NULL, NULL);

	raw.flags = (uint16_t)Long_val(Field(operation, FLAGS));
	raw.fd2 = (int32_t)Long_val(Field(operation, FD2));
	raw.offset = (uint64_t)Long_val(Field(operation, OFFSET));
	raw.length = (uint64_t)Long_val(Field(operation, LENGTH));
	raw.op_flags = (uint32_t)Long_val(Field(operation, OP_FLAGS));
	raw.mode = (uint32_t)Long_val(Field(operation, MODE));
	raw.resolve = (uint64_t)Long_val(Field(operation, RESOLVE));
	raw.timeout_ns = (uint64_t)Long_val(Field(operation, TIMEOUT_NS));
	switch (opcode) {
	case RINGWAY_OP_READ:
	case RINGWAY_OP_WRITE:
	case RINGWAY_OP_STATX:
		raw.buf = (char *)Caml_ba_data_val(Field(operation, BUFFER)) +
		          Long_val(Field(operation, START));
		break;
	case RINGWAY_OP_READV:
	case RINGWAY_OP_WRITEV:
		for (uint64_t i = 0; i < raw.length; i++) {
			value buffer = Field(Field(operation, BUFFERS), i);
			iov[i].iov_base = Caml_ba_data_val(buffer);
			iov[i].iov_len = (size_t)Caml_ba_array_val(buffer)->dim[0];
		}
		raw.buf = iov;
		break;
	default:
		break;
	}
	switch (opcode) {
	case RINGWAY_OP_RENAME:
	case RINGWAY_OP_LINK:
	case RINGWAY_OP_SYMLINK:
		raw.path2 = String_val(Field(operation, PATH2));
		/* fall through */
	case RINGWAY_OP_OPEN:
	case RINGWAY_OP_STATX:
	case RINGWAY_OP_UNLINK:
	case RINGWAY_OP_MKDIR:
		raw.path = String_val(Field(operation, PATH));
		break;
	default:
		break;
	}
	return raw;
}

/* ---- Queue ------------------------------------------------------------------------------------- */

value ringway_ml_error(value number)
{
	return caml_unix_error_of_code((int)Long_val(number));
}

value ringway_ml_last_error(value unit)
{
	(void)unit;
	return caml_copy_string(ringway_last_error());
}

value ringway_ml_version(value unit)
{
	(void)unit;
	return caml_copy_string(ringway_version());
}

/* Creates a queue; -errno in *error if that fails. */
static struct queue *create(const struct ringway_options *options, int *error)
{
	struct queue *queue = calloc(1, sizeof *queue);

	*error = -ENOMEM;
	if (queue == NULL)
		return NULL;
	queue->capacity = options->in_flight;
	queue->free = calloc(queue->capacity, sizeof *queue->free);
	queue->slots = calloc(queue->capacity, sizeof *queue->slots);
	if (queue->free != NULL && queue->slots != NULL)
		*error = ringway_create(options, &queue->queue);
	if (*error != 0) {
		free_queue(queue);
		return NULL;
	}
	/* The lowest slot is on top. */
	for (uint32_t i = 0; i < queue->capacity; i++)
		queue->free[i] = queue->capacity - 1 - i;
	queue->free_count = queue->capacity;
	return queue;
}

value ringway_ml_create(value numbers, value faults)
{
	CAMLparam2(numbers, faults);
	CAMLlocal2(handle, result);
	struct ringway_options options;
	char *text = NULL;
	int error;
	struct queue *queue;

	ringway_options_init(&options);
	options.backend = (uint32_t)Long_val(Field(numbers, 0));
	options.entries = (uint32_t)Long_val(Field(numbers, 1));
	options.completion_entries = (uint32_t)Long_val(Field(numbers, 2));
	options.in_flight = (uint32_t)Long_val(Field(numbers, 3));
	options.threads = (uint32_t)Long_val(Field(numbers, 4));
	options.sync_threads = (uint32_t)Long_val(Field(numbers, 5));
	if (Long_val(Field(numbers, 6)) != 0)
		options.flags |= RINGWAY_SINGLE_ISSUER;
	options.close_wait_ms = (uint32_t)Long_val(Field(numbers, 7));
	if (options.close_wait_ms == 0)
		options.flags |= RINGWAY_NO_CLOSE_WAIT;
	if (caml_string_length(faults) > 0) {
		text = caml_stat_strdup(String_val(faults));
		options.faults = text;
	}
	handle = caml_alloc_custom(&handle_operations, sizeof(struct queue *), 0, 1);
	Queue_val(handle) = NULL;
	caml_release_runtime_system();
	queue = create(&options, &error);
	caml_acquire_runtime_system();
	caml_stat_free(text);
	Queue_val(handle) = queue;
	if (queue != NULL) {
		result = caml_alloc(1, 0); /* Ok handle */
		Store_field(result, 0, handle);
	} else {
		result = caml_alloc(1, 1); /* Error errno */
		Store_field(result, 0, Val_long(error));
	}
	CAMLreturn(result);
}

/* Takes a free slot for an operation that the library has accepted as `id`; returns its op. */
static intnat occupy(struct queue *queue, int64_t id)
{
	uint32_t index = queue->free[--queue->free_count];
	struct slot *slot = &queue->slots[index];

	slot->id = id;
	return (intnat)((slot->generation & GENERATION_MASK) << SLOT_BITS | index);
}

/* The op that the next call of occupy() returns. `after` more slots are taken before it. */
static intnat next_op(struct queue *queue, uint32_t after)
{
	uint32_t index = queue->free[queue->free_count - 1 - after];

	return (intnat)((queue->slots[index].generation & GENERATION_MASK) << SLOT_BITS | index);
}

intnat ringway_ml_push(value handle, value operation)
{
	struct queue *queue = Queue_val(handle);
	struct iovec iov[IOV_MAX];
	struct ringway_operation raw;
	int64_t id;
	intnat op;
	int error = begin(queue);

	if (error != 0)
		return error;
	if (queue->free_count == 0) {
		end(queue);
		return -EAGAIN;
	}
	raw = fill(operation, iov);
	op = next_op(queue, 0);
	raw.user_data = (void *)op;
	id = ringway_push(queue->queue, &raw);
	if (id > 0)
		occupy(queue, id);
	end(queue);
	return id > 0 ? op : (intnat)id;
}

value ringway_ml_push_byte(value handle, value operation)
{
	return Val_long(ringway_ml_push(handle, operation));
}

/* Stores the ops in the array `ops`, whose elements are immediate before and after. */
value ringway_ml_push_chain(value handle, value operations, value ops)
{
	CAMLparam3(handle, operations, ops);
	struct queue *queue = Queue_val(handle);
	uint32_t count = (uint32_t)Wosize_val(operations);
	struct ringway_operation *raw = caml_stat_alloc(count * sizeof *raw);
	int64_t *ids = caml_stat_alloc(count * sizeof *ids);
	struct iovec *iov = NULL;
	size_t buffers = 0;
	int64_t result = begin(queue);

	if (result != 0)
		goto out;
	if (queue->free_count < count) {
		result = -EAGAIN;
		goto ended;
	}
	for (uint32_t i = 0; i < count; i++)
		buffers += Wosize_val(Field(Field(operations, i), BUFFERS));
	iov = caml_stat_alloc_noexc((buffers + 1) * sizeof *iov);
	if (iov == NULL) {
		result = -ENOMEM;
		goto ended;
	}
	buffers = 0;
	for (uint32_t i = 0; i < count; i++) {
		raw[i] = fill(Field(operations, i), iov + buffers);
		raw[i].user_data = (void *)next_op(queue, i);
		buffers += Wosize_val(Field(Field(operations, i), BUFFERS));
	}
	result = ringway_push_chain(queue->queue, raw, count, ids);
	for (uint32_t i = 0; result > 0 && i < count; i++)
		Store_field(ops, i, Val_long(occupy(queue, ids[i])));
ended:
	end(queue);
out:
	caml_stat_free(iov);
	caml_stat_free(ids);
	caml_stat_free(raw);
	CAMLreturn(Val_long(result > 0 ? 0 : result));
}

value ringway_ml_submit(value handle)
{
	CAMLparam1(handle);
	struct queue *queue = Queue_val(handle);
	int result = begin(queue);

	if (result == 0) {
		caml_release_runtime_system();
		result = ringway_submit(queue->queue);
		caml_acquire_runtime_system();
		end(queue);
	}
	CAMLreturn(Val_long(result));
}

intnat ringway_ml_cancel(value handle, intnat op)
{
	struct queue *queue = Queue_val(handle);
	uint64_t index = (uint64_t)op & SLOT_MASK;
	intnat result = begin(queue);

	if (result != 0)
		return result;
	result = -ENOENT;
	if (index < queue->capacity) {
		struct slot *slot = &queue->slots[index];
		if (slot->id > 0 &&
		    (slot->generation & GENERATION_MASK) == (uint64_t)op >> SLOT_BITS)
			result = ringway_cancel(queue->queue, slot->id);
	}
	end(queue);
	return result;
}

value ringway_ml_cancel_byte(value handle, value op)
{
	return Val_long(ringway_ml_cancel(handle, Long_val(op)));
}

value ringway_ml_cancel_all(value handle)
{
	struct queue *queue = Queue_val(handle);
	int result = begin(queue);

	if (result == 0) {
		result = ringway_cancel_all(queue->queue);
		end(queue);
	}
	return Val_long(result);
}

intnat ringway_ml_wait(value handle, intnat min, intnat timeout_ns)
{
	CAMLparam1(handle);
	struct queue *queue = Queue_val(handle);
	intnat result = begin(queue);

	if (result == 0) {
		caml_release_runtime_system();
		if (queue->next < queue->count) {
			/* Completions are left: nothing to wait for. */
			result = ringway_submit(queue->queue);
		} else {
			result = ringway_reap_into(queue->queue, queue->batch, BATCH,
			                           min < BATCH ? (unsigned)min : BATCH,
			                           timeout_ns < 0 ? RINGWAY_FOREVER : timeout_ns);
			queue->next = 0;
			queue->count = result < 0 ? 0 : (uint32_t)result;
		}
		caml_acquire_runtime_system();
		end(queue);
	}
	CAMLreturnT(intnat, result);
}

value ringway_ml_wait_byte(value handle, value min, value timeout_ns)
{
	return Val_long(ringway_ml_wait(handle, Long_val(min), Long_val(timeout_ns)));
}

/* caml_modify() neither allocates in OCaml's heap nor raises, so this is a noalloc stub. */
value ringway_ml_take(value handle, value roots, value vectors, value empty, value ops,
                      value results)
{
	struct queue *queue = Queue_val(handle);
	intnat *op = Caml_ba_data_val(ops), *result = Caml_ba_data_val(results);
	intnat capacity = Caml_ba_array_val(ops)->dim[0], count = 0;
	int error = begin(queue);

	if (error != 0)
		return Val_long(error);
	while (count < capacity && queue->next < queue->count) {
		const struct ringway_completion *completion = &queue->batch[queue->next++];
		uint64_t number = (uint64_t)(uintptr_t)completion->user_data;
		uint32_t index = (uint32_t)(number & SLOT_MASK);

		op[count] = (intnat)number;
		result[count] = (intnat)completion->result;
		count++;
		queue->slots[index].id = 0;
		queue->slots[index].generation++;
		queue->free[queue->free_count++] = index;
		if (Field(roots, index) != empty)
			caml_modify(&Field(roots, index), empty);
		if (Field(vectors, index) != Atom(0))
			caml_modify(&Field(vectors, index), Atom(0));
	}
	end(queue);
	return Val_long(count);
}

value ringway_ml_take_byte(value *arguments, int count)
{
	(void)count;
	return ringway_ml_take(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
	                       arguments[5]);
}

value ringway_ml_close(value handle)
{
	CAMLparam1(handle);
	struct queue *queue = Queue_val(handle);
	int result = begin(queue);

	if (result == 0) {
		/* Descriptors that nobody takes any more. */
		while (queue->next < queue->count) {
			const struct ringway_completion *completion = &queue->batch[queue->next++];
			if (completion->opcode == RINGWAY_OP_OPEN && completion->result >= 0)
				close((int)completion->result);
		}
		caml_release_runtime_system();
		result = ringway_destroy(&queue->queue);
		caml_acquire_runtime_system();
		end(queue);
	}
	CAMLreturn(Val_long(result));
}

value ringway_ml_descriptor(value handle)
{
	struct queue *queue = Queue_val(handle);
	int result = begin(queue);

	if (result == 0) {
		result = ringway_fd(queue->queue);
		end(queue);
	}
	return Val_long(result);
}

value ringway_ml_in_flight(value handle)
{
	struct queue *queue = Queue_val(handle);

	return Val_long(queue->capacity - queue->free_count);
}

value ringway_ml_stats(value handle)
{
	CAMLparam1(handle);
	CAMLlocal1(result);
	struct queue *queue = Queue_val(handle);
	struct ringway_stats stats;

	if (begin(queue) != 0)
		CAMLreturn(Atom(0));
	ringway_get_stats(queue->queue, &stats, sizeof stats);
	end(queue);
	result = caml_alloc(8, 0);
	Store_field(result, 0, Val_long(stats.pushed));
	Store_field(result, 1, Val_long(stats.delivered));
	Store_field(result, 2, Val_long(stats.in_flight));
	Store_field(result, 3, Val_long(stats.system_calls));
	Store_field(result, 4, Val_long(stats.retries));
	Store_field(result, 5, Val_long(stats.continued));
	Store_field(result, 6, Val_long(stats.to_threads));
	Store_field(result, 7, Val_long(stats.late));
	CAMLreturn(result);
}

value ringway_ml_backend(value handle)
{
	struct queue *queue = Queue_val(handle);
	int result = begin(queue);

	if (result == 0) {
		result = (int)ringway_get_backend(queue->queue);
		end(queue);
	}
	return Val_long(result);
}

value ringway_ml_explain(value handle)
{
	CAMLparam1(handle);
	CAMLlocal1(text);
	struct queue *queue = Queue_val(handle);
	size_t length;

	if (begin(queue) != 0)
		CAMLreturn(caml_copy_string(""));
	length = ringway_explain(queue->queue, NULL, 0);
	text = caml_alloc_string(length);
	ringway_explain(queue->queue, (char *)Bytes_val(text), length + 1);
	end(queue);
	CAMLreturn(text);
}
