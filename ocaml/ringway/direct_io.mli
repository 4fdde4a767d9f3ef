(** The alignment that direct I/O requires, and the sizes of untorn writes. *)

type t = {
  memory : int;  (** of the addresses of buffers, in bytes *)
  offset : int;  (** of offsets and lengths, in bytes *)
  max_request : int;
      (** the device's largest request in bytes: longer transfers are split; 0: unknown *)
  untorn_min : int;
      (** bytes of the shortest {!Operation.untorn} write, a power of two; 0: there are none *)
  untorn_max : int;  (** bytes of the longest one *)
  untorn_max_opt : int;  (** bytes of the longest one that the device makes itself; 0: unknown *)
  untorn_max_segments : int;  (** the most buffers of one *)
}

val get : Unix.file_descr -> t
(** The numbers for an open file; the alignment is from [statx(2)] where the kernel supports that
    (Linux 6.1), otherwise from the device's block size. Blocks for a system call or for reading a
    few files of sysfs, without the runtime lock.

    @raise Unix.Unix_error [EBADF]. *)
