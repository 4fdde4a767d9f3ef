(** Reads from the page cache only, without a queue. They wait neither for a device nor for a
    journal: they are [preadv2(2)] with [RWF_NOWAIT] (Linux 4.14), and on tmpfs without swap space,
    where all data is in memory, plain reads. *)

type t
(** What is known of an open file. *)

val create : Unix.file_descr -> t
(** Makes no system call. Do not use it after the descriptor was closed.

    @raise Invalid_argument if the descriptor is negative. *)

val read : t -> Buffer.t -> off:int -> len:int -> pos:int -> int
(** [read t buffer ~off ~len ~pos] reads at [pos], or at the current position if [pos] is
    {!Operation.current_position}. The result is the number of bytes if that is all of them, or all
    up to the end of the file.

    A negative result [r] means that the rest needs a queue: [-r - 1] bytes have been read. The rest
    is not cached, or the file cannot be read this way or at all, or the read may wait: on ext4, the
    first read after a write changes the access time, which waits for a commit of the journal. On
    kernels 5.9 and 5.10, which do not tell the end of the file from what is not cached, the end
    needs a queue too, except on tmpfs without swap space.

    The first read of a value makes several system calls to look up the file system, and later ones
    make one or two as a rule. Copies at about 10 GB/s with the runtime lock held, and allocates
    nothing in OCaml's heap. At the current position it waits, with the runtime lock, while somebody
    else who has the same open file reads or writes there: try that only if nobody else has it.

    @raise Invalid_argument if the range is outside of the buffer. *)

val read_bytes : t -> Bytes.t -> off:int -> len:int -> pos:int -> int
(** As {!read}. *)

val note_written : t -> unit
(** The file was written. Call it after each write of the process: otherwise a read within the next
    10 ms may not notice that it has to change the access time. *)
