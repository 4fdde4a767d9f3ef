(** Reads from the page cache only, without waiting for the device and without a queue: [preadv2(2)]
    with [RWF_NOWAIT] (Linux 4.14). *)

val read : Unix.file_descr -> Buffer.t -> off:int -> len:int -> pos:int -> int
(** [read fd buffer ~off ~len ~pos] reads at [pos], or at the current position if [pos] is
    {!Operation.current_position}. The result is the number of bytes if that is all of them, or all
    up to the end of the file.

    A negative result [r] means that the rest needs a queue, because it is not cached or the file
    cannot be read this way or at all: [-r - 1] bytes have been read. Makes one or two system calls,
    copies at about 10 GB/s with the runtime lock held, and allocates nothing.

    @raise Invalid_argument if the range is outside of the buffer. *)

val read_bytes : Unix.file_descr -> Bytes.t -> off:int -> len:int -> pos:int -> int
(** As {!read}. *)
