(** The alignment that direct I/O requires. *)

type t = {
  memory : int;  (** of the addresses of buffers, in bytes *)
  offset : int;  (** of offsets and lengths, in bytes *)
  max_request : int;
      (** the device's largest request in bytes: longer transfers are split; 0: unknown *)
}

val get : Unix.file_descr -> t
(** The alignment for an open file: from [statx(2)] where the kernel supports that (Linux 6.1),
    otherwise from the device's block size. Blocks for a system call or for reading a few files of
    sysfs, without the runtime lock.

    @raise Unix.Unix_error [EBADF]. *)
