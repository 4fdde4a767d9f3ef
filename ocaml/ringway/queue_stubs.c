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
#include <caml/signals.h>
#include <caml/threads.h>
#include <caml/unixsupport.h>
#include <caml/version.h>

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if OCAML_VERSION < 50000
#define caml_unix_error_of_code unix_error_of_code
#endif

/* Results that are not an errno; queue.ml knows them. */
#define IN_USE (-10000)
#define CLOSED (-10001)
#define NO_ROOM (-10002)
/* A result of Queue.close_reporting: the operation did not end. */
#define UNFINISHED (-10003)

/* The longest text of Queue.create's faults, with its NUL; queue.ml checks it. */
#define FAULTS 512

/* Completions that the stubs hold between a wait and a take. */
#define BATCH 256

#define SLOT_BITS 24
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
/* An op is an OCaml int: 24 bits slot, 38 bits generation. */
#define GENERATION_MASK ((UINT64_C(1) << (62 - SLOT_BITS)) - 1)

/* The operation of a slot. */
struct slot {
	int64_t id; /* of the C library; 0 if the slot is free */
	uint64_t generation;
	/* What destroy() has found out: the result, or UNFINISHED. */
	int64_t result;
	uint32_t opcode;
};

/* The fields of Queue.roots, in its order. */
enum { ROOTED_BUFFERS, ROOTED_VECTORS, NO_BUFFER, NO_VECTOR };

struct queue {
	struct ringway_queue *queue; /* NULL before it is opened and after close */
	long owner; /* what `forks` was when the queue was opened */
	/* Nonzero while a thread is inside a stub without the runtime lock. */
	atomic_int in_use;
	/* Stubs that are about to release the runtime lock or have released it: changed with the
	   lock held, so for OCaml 4 only. */
	int releasing;
	uint32_t unfinished; /* operations that did not end by the close */
	/* Whether `roots` is registered with the garbage collector. It is from before the first
	   operation until after the last one: what the kernel may access stays alive even if the
	   program, a finaliser or an exception loses the queue. */
	int rooted;
	value roots; /* Queue.roots */
	uint32_t capacity;
	uint32_t free_count;
	uint32_t *free; /* a stack of slot numbers */
	struct slot *slots;
	uint32_t used; /* slots that were used at least once: 0 to used - 1 */
	/* Completions that were reaped and not taken: batch[next] to batch[count - 1]. */
	uint32_t next, count;
	struct ringway_completion batch[BATCH];
	struct iovec iov[IOV_MAX]; /* of the operation that is being pushed */
};

#define Queue_val(v) (*(struct queue **)Data_custom_val(v))

/* A queue that is still open has been lost with its operations: only leaking it is safe. */
static void finalize_handle(value handle)
{
	struct queue *queue = Queue_val(handle);

	if (queue != NULL && queue->queue == NULL && !queue->rooted) {
		free(queue->free);
		free(queue->slots);
		free(queue);
	}
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

/* The number of forks from the process that loaded this library to this one. */
static atomic_long forks;

static void count_fork(void)
{
	atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

__attribute__((constructor)) static void watch_forks(void)
{
	pthread_atfork(NULL, NULL, count_fork);
}

/* Does the queue belong to a process from which this one was forked? The library knows, too, but is
   not called for what the stubs hold. */
static int is_forked(const struct queue *queue)
{
	return queue->owner != atomic_load_explicit(&forks, memory_order_relaxed);
}

/* begin() for a stub that may not be alone: 0, IN_USE, CLOSED, or -ECHILD if another thread was
   inside a stub when this process was forked. A forked child may close its copy of the queue. */
static int begin_released(struct queue *queue)
{
	if (atomic_exchange_explicit(&queue->in_use, 1, memory_order_acquire) != 0)
		return is_forked(queue) ? -ECHILD : IN_USE;
	if (queue->queue != NULL)
		return 0;
	atomic_store_explicit(&queue->in_use, 0, memory_order_release);
	return CLOSED;
}

/*
 * Begins a use of the queue: 0, IN_USE, CLOSED, or -ECHILD in a forked child.
 *
 * OCaml 4 has one runtime lock, so a stub that holds it excludes all threads but those that are
 * inside already, or enter meanwhile, without the lock. Those have announced themselves while they
 * had it. Where `releasing` is 0 there are none, which spares the stubs of each operation an atomic
 * instruction. In OCaml 5 another domain may call close at any time.
 */
static int begin(struct queue *queue)
{
	if (is_forked(queue))
		return -ECHILD;
	if (OCAML_VERSION >= 50000 || queue->releasing > 0)
		return begin_released(queue);
	return queue->queue != NULL ? 0 : CLOSED;
}

static void release(struct queue *queue)
{
	if (OCAML_VERSION < 50000)
		queue->releasing++;
	caml_release_runtime_system();
}

/*
 * Releases the runtime lock and begins a use, in this order, because the release may run a signal
 * handler, which may use the queue or raise. If it raises, `releasing` stays above 0 and costs time
 * only.
 */
static int release_and_begin(struct queue *queue)
{
	release(queue);
	return is_forked(queue) ? -ECHILD : begin_released(queue);
}

static void acquire(struct queue *queue)
{
	caml_acquire_runtime_system();
	if (OCAML_VERSION < 50000)
		queue->releasing--;
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

value ringway_ml_blit(value src, intnat src_off, value dst, intnat dst_off, intnat len)
{
	memmove((char *)Caml_ba_data_val(dst) + dst_off, (char *)Caml_ba_data_val(src) + src_off,
	        (size_t)len);
	return Val_unit;
}

value ringway_ml_blit_byte(value src, value src_off, value dst, value dst_off, value len)
{
	return ringway_ml_blit(src, Long_val(src_off), dst, Long_val(dst_off), Long_val(len));
}

/* ---- Operation --------------------------------------------------------------------------------- */

value ringway_ml_constant(value number)
{
	static const int constants[] = {
		AT_FDCWD, O_DIRECT, O_CLOEXEC, AT_REMOVEDIR, AT_SYMLINK_FOLLOW,
		POLLIN, POLLOUT, POLLERR, POLLHUP, IOV_MAX, sizeof(struct statx),
		ECANCELED, EAGAIN, ENOENT, ECHILD, EEXIST,
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

/* The queue that this thread is destroying. */
static _Thread_local struct queue *destroyed;

/* Called by ringway_destroy() for each operation that has ended: all others are reaped without
   callbacks. */
static void record(struct ringway_queue *queue, const struct ringway_completion *completion)
{
	struct slot *slot = &destroyed->slots[(uintptr_t)completion->user_data & SLOT_MASK];

	(void)queue;
	slot->result = completion->result;
	slot->opcode = completion->opcode;
}

/* Translates an Operation.t. `iov` has room for its buffers. The result points into OCaml's heap,
   so it is valid until the next allocation or release of the runtime lock. */
static struct ringway_operation fill(value operation, struct iovec *iov)
{
	unsigned opcode = (unsigned)Long_val(Field(operation, OPCODE));
	struct ringway_operation raw =
		ringway_prep((enum ringway_opcode)opcode, (int)Long_val(Field(operation, FD)),
		             record, NULL);

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

/* Returns a handle without an open queue, which has this capacity. */
value ringway_ml_handle(value capacity)
{
	CAMLparam1(capacity);
	CAMLlocal1(handle);
	struct queue *queue;

	handle = caml_alloc_custom(&handle_operations, sizeof(struct queue *), 0, 1);
	Queue_val(handle) = NULL;
	queue = calloc(1, sizeof *queue);
	if (queue == NULL)
		caml_raise_out_of_memory();
	Queue_val(handle) = queue;
	queue->capacity = (uint32_t)Long_val(capacity);
	queue->free_count = queue->capacity;
	queue->free = calloc(queue->capacity, sizeof *queue->free);
	queue->slots = calloc(queue->capacity, sizeof *queue->slots);
	if (queue->free == NULL || queue->slots == NULL)
		caml_raise_out_of_memory();
	/* The lowest slot is on top. */
	for (uint32_t i = 0; i < queue->capacity; i++)
		queue->free[i] = queue->capacity - 1 - i;
	CAMLreturn(handle);
}

/* Opens the queue of a new handle. Returns 0 or -errno. */
value ringway_ml_open(value handle, value roots, value numbers, value faults)
{
	CAMLparam4(handle, roots, numbers, faults);
	struct queue *queue = Queue_val(handle);
	struct ringway_options options;
	struct ringway_queue *opened = NULL;
	char text[FAULTS];
	int result;

	ringway_options_init(&options);
	options.backend = (uint32_t)Long_val(Field(numbers, 0));
	options.entries = (uint32_t)Long_val(Field(numbers, 1));
	options.completion_entries = (uint32_t)Long_val(Field(numbers, 2));
	options.in_flight = (uint32_t)Long_val(Field(numbers, 3));
	options.threads = (uint32_t)Long_val(Field(numbers, 4));
	options.sync_threads = (uint32_t)Long_val(Field(numbers, 5));
	options.flags = RINGWAY_INTERRUPTIBLE; /* so that OCaml can run signal handlers */
	if (Long_val(Field(numbers, 6)) != 0)
		options.flags |= RINGWAY_SINGLE_ISSUER;
	options.close_wait_ms = (uint32_t)Long_val(Field(numbers, 7));
	if (options.close_wait_ms == 0)
		options.flags |= RINGWAY_NO_CLOSE_WAIT;
	if (caml_string_length(faults) > 0) {
		snprintf(text, sizeof text, "%s", String_val(faults));
		options.faults = text;
	}
	/* This may run a signal handler, which may raise: nothing is held yet. */
	caml_release_runtime_system();
	queue->owner = atomic_load_explicit(&forks, memory_order_relaxed);
	result = ringway_create(&options, &opened);
	caml_acquire_runtime_system();
	queue->queue = opened;
	if (result == 0) {
		queue->roots = roots;
		caml_register_generational_global_root(&queue->roots);
		queue->rooted = 1;
	}
	CAMLreturn(Val_long(result));
}

/* Can the buffers of `count` more operations be rooted? Slots are used in order: the next one that
   was never used has the number of operations in flight. */
static int has_room(const struct queue *queue, uint32_t count)
{
	uint32_t in_flight = queue->capacity - queue->free_count;

	return in_flight + count <= Wosize_val(Field(queue->roots, ROOTED_VECTORS));
}

/* Replaces the arrays of the roots by longer ones, in one step as far as OCaml can see. Arrays that
   are not longer, because another thread was faster, change nothing. */
value ringway_ml_grow(value handle, value buffers, value vectors)
{
	struct queue *queue = Queue_val(handle);
	int result = begin(queue);

	if (result != 0)
		return Val_long(result);
	value old_buffers = Field(queue->roots, ROOTED_BUFFERS);
	value old_vectors = Field(queue->roots, ROOTED_VECTORS);
	mlsize_t length = Wosize_val(old_vectors);

	if (Wosize_val(vectors) > length) {
		for (mlsize_t i = 0; i < length; i++) {
			caml_modify(&Field(buffers, i), Field(old_buffers, i));
			caml_modify(&Field(vectors, i), Field(old_vectors, i));
		}
		caml_modify(&Field(queue->roots, ROOTED_BUFFERS), buffers);
		caml_modify(&Field(queue->roots, ROOTED_VECTORS), vectors);
	}
	end(queue);
	return Val_long(0);
}

/* Makes a slot's buffers those of an operation, or none. caml_modify() neither allocates in OCaml's
   heap nor raises, so [@@noalloc] stubs may call this. */
static void root(struct queue *queue, uint32_t index, value buffer, value vector)
{
	value buffers = Field(queue->roots, ROOTED_BUFFERS);
	value vectors = Field(queue->roots, ROOTED_VECTORS);

	if (Field(buffers, index) != buffer)
		caml_modify(&Field(buffers, index), buffer);
	if (Field(vectors, index) != vector)
		caml_modify(&Field(vectors, index), vector);
}

/* Takes a free slot for an operation that the library has accepted as `id`; returns its op. */
static intnat occupy(struct queue *queue, int64_t id, value operation)
{
	uint32_t index = queue->free[--queue->free_count];
	struct slot *slot = &queue->slots[index];

	slot->id = id;
	slot->opcode = 0;
	if (index >= queue->used)
		queue->used = index + 1;
	root(queue, index, Field(operation, BUFFER), Field(operation, BUFFERS));
	return (intnat)((slot->generation & GENERATION_MASK) << SLOT_BITS | index);
}

/* Returns the op that occupy() returns after `after` other calls. */
static intnat next_op(struct queue *queue, uint32_t after)
{
	uint32_t index = queue->free[queue->free_count - 1 - after];

	return (intnat)((queue->slots[index].generation & GENERATION_MASK) << SLOT_BITS | index);
}

/* Pushes and roots in one step, so that no signal handler or collection comes between. */
intnat ringway_ml_push(value handle, value operation)
{
	struct queue *queue = Queue_val(handle);
	struct ringway_operation raw;
	int64_t id = begin(queue);
	intnat op;

	if (id != 0)
		return id;
	if (queue->free_count == 0) {
		end(queue);
		return -EAGAIN;
	}
	if (!has_room(queue, 1)) {
		end(queue);
		return NO_ROOM;
	}
	raw = fill(operation, queue->iov);
	op = next_op(queue, 0);
	raw.user_data = (void *)op;
	id = ringway_push(queue->queue, &raw);
	if (id > 0)
		occupy(queue, id, operation);
	end(queue);
	return id > 0 ? op : (intnat)id;
}

value ringway_ml_push_byte(value handle, value operation)
{
	return Val_long(ringway_ml_push(handle, operation));
}

/* Stores the ops in the array `ops`, whose elements are immediate before and after. `operations`
   has at most `capacity` elements. */
value ringway_ml_push_chain(value handle, value operations, value ops)
{
	CAMLparam3(handle, operations, ops);
	struct queue *queue = Queue_val(handle);
	uint32_t count = (uint32_t)Wosize_val(operations);
	struct ringway_operation *raw = NULL;
	int64_t *ids = NULL;
	struct iovec *iov = NULL;
	size_t buffers = 0;
	int no_memory = 0;
	int64_t result = begin(queue);

	if (result != 0)
		CAMLreturn(Val_long(result));
	if (queue->free_count < count) {
		end(queue);
		CAMLreturn(Val_long(-EAGAIN));
	}
	if (!has_room(queue, count)) {
		end(queue);
		CAMLreturn(Val_long(NO_ROOM));
	}
	for (uint32_t i = 0; i < count; i++)
		buffers += Wosize_val(Field(Field(operations, i), BUFFERS));
	raw = malloc(count * sizeof *raw);
	ids = malloc(count * sizeof *ids);
	iov = malloc((buffers + 1) * sizeof *iov);
	no_memory = raw == NULL || ids == NULL || iov == NULL;
	if (!no_memory) {
		buffers = 0;
		for (uint32_t i = 0; i < count; i++) {
			raw[i] = fill(Field(operations, i), iov + buffers);
			raw[i].user_data = (void *)next_op(queue, i);
			buffers += Wosize_val(Field(Field(operations, i), BUFFERS));
		}
		result = ringway_push_chain(queue->queue, raw, count, ids);
		for (uint32_t i = 0; result > 0 && i < count; i++)
			Field(ops, i) = Val_long(occupy(queue, ids[i], Field(operations, i)));
	}
	end(queue);
	free(iov);
	free(ids);
	free(raw);
	if (no_memory)
		caml_raise_out_of_memory();
	CAMLreturn(Val_long(result > 0 ? 0 : result));
}

value ringway_ml_submit(value handle)
{
	CAMLparam1(handle);
	struct queue *queue = Queue_val(handle);
	int result;

	result = release_and_begin(queue);
	if (result == 0) {
		result = ringway_submit(queue->queue);
		end(queue);
	}
	acquire(queue);
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

/* Submits, and waits until the batch has `min` completions. Returns 0 or -errno. */
static int fill_batch(struct queue *queue, intnat min, intnat timeout_ns)
{
	uint32_t left = queue->count - queue->next;
	int result;

	if (queue->next > 0) {
		memmove(queue->batch, queue->batch + queue->next, left * sizeof *queue->batch);
		queue->next = 0;
		queue->count = left;
	}
	if (min > BATCH)
		min = BATCH;
	if (left == BATCH)
		result = ringway_submit(queue->queue);
	else
		result = ringway_reap_into(queue->queue, queue->batch + left, BATCH - left,
		                           min > left ? (unsigned)(min - left) : 0,
		                           timeout_ns < 0 ? RINGWAY_FOREVER : timeout_ns);
	if (result < 0)
		return result;
	if (left < BATCH)
		queue->count += (uint32_t)result;
	return 0;
}

intnat ringway_ml_wait(value handle, intnat min, intnat timeout_ns)
{
	CAMLparam1(handle);
	struct queue *queue = Queue_val(handle);
	intnat result;

	result = release_and_begin(queue);
	if (result == 0) {
		result = fill_batch(queue, min, timeout_ns);
		end(queue);
	}
	acquire(queue);
	/* Runs the handler of a signal that ended the wait. If it raises, the completions are
	   kept. */
	caml_process_pending_actions();
	CAMLreturnT(intnat, result);
}

value ringway_ml_wait_byte(value handle, value min, value timeout_ns)
{
	return Val_long(ringway_ml_wait(handle, Long_val(min), Long_val(timeout_ns)));
}

/* Stores completions in a Queue.Completions.t. */
intnat ringway_ml_take(value handle, value completions)
{
	struct queue *queue = Queue_val(handle);
	struct caml_ba_array *ops = Caml_ba_array_val(Field(completions, 0));
	intnat *op = ops->data, *result = Caml_ba_data_val(Field(completions, 1));
	intnat room = ops->dim[0], count = 0;
	int error = begin(queue);

	if (error != 0)
		return error;
	while (count < room && queue->next < queue->count) {
		const struct ringway_completion *completion = &queue->batch[queue->next++];
		uint64_t number = (uint64_t)(uintptr_t)completion->user_data;
		uint32_t index = (uint32_t)(number & SLOT_MASK);

		op[count] = (intnat)number;
		result[count] = (intnat)completion->result;
		count++;
		queue->slots[index].id = 0;
		queue->slots[index].generation++;
		queue->free[queue->free_count++] = index;
		root(queue, index, Field(queue->roots, NO_BUFFER), Field(queue->roots, NO_VECTOR));
	}
	/* With the completions, so that a signal handler that raises loses none of them. */
	Field(completions, 2) = Val_long(count);
	end(queue);
	return count;
}

value ringway_ml_take_byte(value handle, value completions)
{
	return Val_long(ringway_ml_take(handle, completions));
}

/* Drops the completions of the batch, and closes descriptors that nobody can take any more. */
static void drop_batch(struct queue *queue)
{
	while (queue->next < queue->count) {
		const struct ringway_completion *completion = &queue->batch[queue->next++];

		if (completion->opcode == RINGWAY_OP_OPEN && completion->result >= 0)
			close((int)completion->result);
		queue->slots[(uintptr_t)completion->user_data & SLOT_MASK].id = 0;
	}
}

static void close_opened(const struct slot *slot)
{
	if (slot->id > 0 && slot->opcode == RINGWAY_OP_OPEN && slot->result >= 0)
		close((int)slot->result);
}

/* Destroys the queue. Each slot that is in use has its result afterwards, or UNFINISHED: then the
   kernel may still access its buffers, and the buffers of the queue stay rooted. If nobody takes
   the results, what was opened is closed. */
static void destroy(struct queue *queue, int results_are_taken)
{
	for (uint32_t i = 0; i < queue->used; i++)
		if (queue->slots[i].id > 0)
			queue->slots[i].result = UNFINISHED;
	/* A forked child knows nothing of its parent's operations, but has the descriptors of opens
	   that had ended before the fork. */
	destroyed = queue;
	if (is_forked(queue))
		drop_batch(queue);
	while (queue->next < queue->count)
		record(queue->queue, &queue->batch[queue->next++]);
	ringway_destroy(&queue->queue);
	for (uint32_t i = 0; i < queue->used; i++)
		if (queue->slots[i].id > 0 && queue->slots[i].result == UNFINISHED)
			queue->unfinished++;
	for (uint32_t i = 0; !results_are_taken && i < queue->used; i++)
		close_opened(&queue->slots[i]);
}

/* Stores what has become of the operations of a queue that was destroyed, and returns their number.
   There is room for all of them, or nobody takes them. */
static uint32_t report(struct queue *queue, intnat *ops, intnat *results, uint32_t room)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < queue->used && count < room; i++) {
		struct slot *slot = &queue->slots[i];

		if (slot->id <= 0)
			continue;
		ops[count] = (intnat)((slot->generation & GENERATION_MASK) << SLOT_BITS | i);
		results[count++] = (intnat)slot->result;
	}
	queue->free_count = queue->capacity;
	/* The collector, which does not know their size, may be long in coming. */
	free(queue->free);
	free(queue->slots);
	queue->free = NULL;
	queue->slots = NULL;
	return count;
}

static void unroot(struct queue *queue)
{
	if (queue->rooted)
		caml_remove_generational_global_root(&queue->roots);
	queue->rooted = 0;
}

/* Stores what has become of the operations in flight in a Queue.Completions.t: its length is the
   room, or negative if nobody takes the results, and then their number. Returns NO_ROOM, and does
   not close the queue, if there are more operations. */
value ringway_ml_close(value handle, value completions)
{
	CAMLparam2(handle, completions);
	struct queue *queue = Queue_val(handle);
	intnat length = Long_val(Field(completions, 2));
	uint32_t room = length < 0 ? 0 : (uint32_t)length, count = 0;
	int result;

	release(queue);
	result = begin_released(queue);
	if (result == 0 && length >= 0 && queue->capacity - queue->free_count > room) {
		end(queue);
		result = NO_ROOM;
	}
	if (result == 0)
		destroy(queue, length >= 0);
	acquire(queue);
	if (result == 0) {
		count = report(queue, Caml_ba_data_val(Field(completions, 0)),
		               Caml_ba_data_val(Field(completions, 1)), room);
		if (queue->unfinished == 0)
			unroot(queue);
		end(queue);
		result = queue->unfinished > 0;
	}
	Field(completions, 2) = Val_long(count);
	CAMLreturn(Val_long(result));
}

value ringway_ml_unfinished(value handle)
{
	return Val_long(Queue_val(handle)->unfinished);
}

/*
 * For the finaliser of a queue that the program has lost: cancels what is in flight, and closes the
 * queue when nothing is. Does not wait. Returns false if it is to be called again later.
 */
value ringway_ml_retire(value handle)
{
	struct queue *queue = Queue_val(handle);
	int result = begin_released(queue);
	int done;

	if (result != 0)
		return Val_bool(result != IN_USE);
	ringway_cancel_all(queue->queue);
	do {
		drop_batch(queue);
		result = fill_batch(queue, 0, 0);
	} while (queue->count > queue->next);
	/* An operation of a single issuer cannot be reaped by another thread. It may be this one's
	   turn to run the finaliser next time. Other errors are for good. */
	done = ringway_in_flight(queue->queue) == 0 ||
	       (result < 0 && result != -EEXIST && result != -ENOMEM && result != -EAGAIN &&
		result != -EBUSY);
	if (done) {
		destroy(queue, 0);
		report(queue, NULL, NULL, 0);
		if (queue->unfinished == 0)
			unroot(queue);
	}
	end(queue);
	return Val_bool(done);
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

/* The caller keeps `buffers` alive until the queue is closed. */
value ringway_ml_register_buffers(value handle, value buffers)
{
	CAMLparam2(handle, buffers);
	struct queue *queue = Queue_val(handle);
	size_t count = Wosize_val(buffers);
	struct iovec *iov = malloc((count + 1) * sizeof *iov);
	int result;

	if (iov == NULL)
		caml_raise_out_of_memory();
	for (size_t i = 0; i < count; i++) {
		iov[i].iov_base = Caml_ba_data_val(Field(buffers, i));
		iov[i].iov_len = (size_t)Caml_ba_array_val(Field(buffers, i))->dim[0];
	}
	result = begin(queue);
	if (result == 0) {
		result = ringway_register_buffers(queue->queue, iov, count);
		end(queue);
	}
	free(iov);
	CAMLreturn(Val_long(result));
}

value ringway_ml_register_file(value handle, value fd)
{
	struct queue *queue = Queue_val(handle);
	int result = begin(queue);

	if (result == 0) {
		result = ringway_register_file(queue->queue, Int_val(fd));
		end(queue);
	}
	return Val_long(result);
}

value ringway_ml_unregister_file(value handle, value fd)
{
	struct queue *queue = Queue_val(handle);
	int result = begin(queue);

	if (result == 0) {
		result = ringway_unregister_file(queue->queue, Int_val(fd));
		end(queue);
	}
	return Val_long(result);
}

/* Nobody changes free_count while the caller has the runtime lock. */
value ringway_ml_in_flight(value handle)
{
	struct queue *queue = Queue_val(handle);

	return Val_long(queue->capacity - queue->free_count);
}

/* Fills an array of 8 integers. */
value ringway_ml_stats(value handle, value numbers)
{
	struct queue *queue = Queue_val(handle);
	struct ringway_stats stats;
	uint32_t left;
	int result = begin(queue);

	if (result != 0)
		return Val_long(result);
	ringway_get_stats(queue->queue, &stats, sizeof stats);
	left = queue->count - queue->next;
	end(queue);
	/* What the library has delivered to the batch is in flight for the program. */
	Field(numbers, 0) = Val_long(stats.pushed);
	Field(numbers, 1) = Val_long(stats.delivered - left);
	Field(numbers, 2) = Val_long(stats.in_flight + left);
	Field(numbers, 3) = Val_long(stats.system_calls);
	Field(numbers, 4) = Val_long(stats.retries);
	Field(numbers, 5) = Val_long(stats.continued);
	Field(numbers, 6) = Val_long(stats.to_threads);
	Field(numbers, 7) = Val_long(stats.late);
	return Val_long(0);
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

/* A text of the library: of the queue, or of one of its descriptors. */
static size_t explain(struct ringway_queue *queue, int fd, char *text, size_t size)
{
	return fd < 0 ? ringway_explain(queue, text, size)
	              : ringway_explain_dont_cache(queue, fd, text, size);
}

/* Returns Ok text or Error number. The descriptor is -1 for the text of the queue. */
value ringway_ml_explain(value handle, value fd)
{
	CAMLparam2(handle, fd);
	CAMLlocal2(content, result);
	struct queue *queue = Queue_val(handle);
	char *text = NULL;
	int error = begin(queue);

	if (error == 0) {
		size_t size = explain(queue->queue, Int_val(fd), NULL, 0) + 1;

		text = malloc(size);
		if (text != NULL) {
			text[0] = '\0';
			explain(queue->queue, Int_val(fd), text, size);
		}
		end(queue);
		if (text == NULL)
			caml_raise_out_of_memory();
		content = caml_alloc_initialized_string(strlen(text), text);
		free(text);
	} else {
		content = Val_long(error);
	}
	result = caml_alloc_small(1, error == 0 ? 0 : 1);
	Field(result, 0) = content;
	CAMLreturn(result);
}
