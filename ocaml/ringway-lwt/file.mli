(** Files. Transfers go through the ring of {!Engine} or, without it, through the best backend that
    {!Ringway.Queue} finds. Cached data is read within the call.

    - {b Errors} are [Unix.Unix_error] with the code and function name that [Unix] gives, such as
      [(EBADF, "pread", "")].
    - {b Buffers} are [Lwt_bytes.t] or [Bytes]. The program does not access a Bigarray between the
      call and the end of the operation. [Bytes] are copied: at the call for a write, at the end for
      a read, unless the page cache has the data.
    - {b Cancelling} a promise rejects it at once with [Lwt.Canceled] and requests that the
      operation be cancelled, which may come too late: then the file was written, or the position
      moved, or the buffer filled nevertheless. The library keeps the memory alive until the kernel
      lets go. The program does not know when that is, unless it waits for {!close}: after a
      cancelled transfer, as by [Lwt.pick] with a timeout, take another Bigarray. [Bytes] are not
      written after the promise has been rejected.
    - {b Short transfers} are possible, as with [Unix.read] and [Unix.single_write]; the [_exactly]
      forms continue them.
    - {b The current position.} {!read}, {!write} and {!lseek} and their forms are performed one
      after another, in the order of the calls. {!pread} and {!pwrite} do not use the position and
      are performed concurrently. A pipe, a terminal or a socket has no position: its reads are
      performed one after another, and so are its writes, at the same time as the reads.

    Ranges outside of a buffer are [Invalid_argument], which the functions raise at once. *)

type t

val openfile :
  ?direct:bool -> ?dont_cache:bool -> string -> Unix.open_flag list -> Unix.file_perm -> t Lwt.t
(** Opens a file as [Unix.openfile] does, always with [O_CLOEXEC]. With [direct] (default [false]),
    transfers bypass the page cache; see {!direct_alignment}. With [dont_cache] (default [false]),
    they use it and leave no pages of their own there ([RWF_DONTCACHE]: Linux 6.14, ext4 and XFS);
    where there is no such flag, the pages stay. None of them is made within the call then. If the
    promise is cancelled and the file is opened nevertheless, it is closed again. On io_uring, an
    open of a FIFO for reading does not wait for a writer. *)

val of_unix_file_descr : Unix.file_descr -> t
(** The descriptor belongs to the file from now on. *)

val unix_file_descr : t -> Unix.file_descr
(** The descriptor still belongs to the file. As the caller may share it from now on, cached data is
    read within the call no more by functions at the current position.

    @raise Unix.Unix_error [EBADF] after {!close}. *)

val close : t -> unit Lwt.t
(** Closes the file when the operations in flight have ended. From the call on, every function,
    [close] too, fails with [EBADF]. Operations in flight on pipes, terminals and sockets may never
    end: those are cancelled and rejected with [EBADF]. The promise cannot be cancelled. *)

val with_file :
  ?direct:bool ->
  ?dont_cache:bool ->
  string ->
  Unix.open_flag list ->
  Unix.file_perm ->
  (t -> 'a Lwt.t) ->
  'a Lwt.t
(** [with_file path flags perm f] opens a file, and closes it when the promise of [f] is resolved,
    whatever its result. An error of {!close} rejects the promise, unless [f] has failed. *)

(** {1 Transfers}

    [pread t buffer ~pos off len] reads up to [len] bytes at offset [pos] of the file into [buffer],
    from [off] on, and returns their number: 0 at the end of the file. {!read} does so at the
    current position, and {!write} and {!pwrite} write. *)

val pread : t -> Ringway.Buffer.t -> pos:int -> int -> int -> int Lwt.t
val pwrite : t -> Ringway.Buffer.t -> pos:int -> int -> int -> int Lwt.t
val read : t -> Ringway.Buffer.t -> int -> int -> int Lwt.t
val write : t -> Ringway.Buffer.t -> int -> int -> int Lwt.t
val pread_bytes : t -> Bytes.t -> pos:int -> int -> int -> int Lwt.t
val pwrite_bytes : t -> Bytes.t -> pos:int -> int -> int -> int Lwt.t
val pwrite_string : t -> string -> pos:int -> int -> int -> int Lwt.t
val read_bytes : t -> Bytes.t -> int -> int -> int Lwt.t
val write_bytes : t -> Bytes.t -> int -> int -> int Lwt.t
val write_string : t -> string -> int -> int -> int Lwt.t

(** {1 Exact transfers}

    All [len] bytes are transferred. After an error, some of them may have been. If the file ends
    earlier, reading fails with [End_of_file]. *)

val pread_exactly : t -> Ringway.Buffer.t -> pos:int -> int -> int -> unit Lwt.t
val pwrite_exactly : t -> Ringway.Buffer.t -> pos:int -> int -> int -> unit Lwt.t
val read_exactly : t -> Ringway.Buffer.t -> int -> int -> unit Lwt.t
val write_exactly : t -> Ringway.Buffer.t -> int -> int -> unit Lwt.t
val pread_exactly_bytes : t -> Bytes.t -> pos:int -> int -> int -> unit Lwt.t
val pwrite_exactly_bytes : t -> Bytes.t -> pos:int -> int -> int -> unit Lwt.t
val pwrite_exactly_string : t -> string -> pos:int -> int -> int -> unit Lwt.t
val read_exactly_bytes : t -> Bytes.t -> int -> int -> unit Lwt.t
val write_exactly_bytes : t -> Bytes.t -> int -> int -> unit Lwt.t
val write_exactly_string : t -> string -> int -> int -> unit Lwt.t

(** {1 Many ranges} *)

type range = { pos : int; buffer : Ringway.Buffer.t; off : int; len : int }

val read_ranges : t -> range array -> (int, exn) result array Lwt.t
(** Reads all ranges concurrently, in one submission as far as the queue has room. Each result is
    the number of bytes, less than [len] only at the end of the file, or the error of its range. The
    promise is fulfilled when all have ended. It is rejected only if the file is closed or if it is
    cancelled. *)

(** {1 Other operations} *)

val lseek : t -> int -> Unix.seek_command -> int Lwt.t
val stat : t -> Unix.stats Lwt.t
(** [fstat(2)]. *)

val fsync : t -> unit Lwt.t
(** [fsync(2)]. It covers the writes whose promises were fulfilled before. An error means that data
    may be lost, and is reported once: a second call that succeeds proves nothing.

    A file that was created, renamed or deleted survives a crash only if its directory is synced,
    too: [with_file directory [ O_RDONLY ] 0 fsync]. *)

val fdatasync : t -> unit Lwt.t
(** As {!fsync}, without times. *)

val truncate : t -> int -> unit Lwt.t
(** [ftruncate(2)]. *)

val allocate : t -> pos:int -> len:int -> unit Lwt.t
(** [fallocate(2)]: allocates the blocks of a range, and extends the file to it.

    @raise Unix.Unix_error [EOPNOTSUPP] if the file system does not support it. *)

type advice = Normal | Random | Sequential | Will_need | Dont_need | No_reuse

val advise : t -> pos:int -> len:int -> advice -> unit Lwt.t
(** [posix_fadvise(2)]. A [len] of 0 means up to the end of the file. *)

val direct_alignment : t -> Ringway.Direct_io.t
(** What [direct] transfers require of addresses, offsets and lengths; otherwise they fail with
    [EINVAL], and the last argument of [Unix.Unix_error] says what is wrong. [Bytes] need no
    alignment of their addresses. {!Ringway.Buffer.create_aligned} makes buffers. Blocks briefly.

    @raise Unix.Unix_error [EBADF] after {!close}. *)
