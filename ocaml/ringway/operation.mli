(** What can be pushed to a {!Queue}: one value describes one operation. Nothing happens before
    {!Queue.push}. A value can be pushed as often as you like.

    Offsets and lengths are in bytes. Errors and results are those of the system call that is
    named. The result of an operation is an [int]: 0 or more, or minus an errno.

    Flags, permissions and masks that are negative or over 32 bits are [Invalid_argument], and so
    are offsets and lengths below 0. *)

type t

val current_position : int
(** An offset: the current position of the file, which the transfer advances. Files without one
    (pipes, sockets, terminals) ignore the offset. *)

type directory
(** The directory that a relative path starts from. *)

val cwd : directory
(** The current directory of the process. *)

val directory : Unix.file_descr -> directory

(** {1 Transfers} *)

val read : Unix.file_descr -> Buffer.t -> off:int -> len:int -> pos:int -> t
(** [pread(2)] of [len] bytes into the buffer from [off] on; [read(2)] if [pos] is
    {!current_position}. Result: bytes; 0 at the end of the file.

    @raise Invalid_argument if the range is outside of the buffer, or [pos] is negative and not
    {!current_position}. *)

val write : Unix.file_descr -> Buffer.t -> off:int -> len:int -> pos:int -> t
(** [pwrite(2)], or [write(2)] at {!current_position}. Result: bytes.

    @raise Invalid_argument as {!read}. *)

val readv : Unix.file_descr -> Buffer.t array -> pos:int -> t
(** [preadv(2)]. At most 1024 buffers. Result: bytes in total.

    @raise Invalid_argument for more buffers, or a negative [pos]. *)

val writev : Unix.file_descr -> Buffer.t array -> pos:int -> t
(** [pwritev(2)]. As {!readv}. *)

(** {1 Files} *)

val fsync : Unix.file_descr -> t
(** [fsync(2)]. It does not cover writes in flight: push it after them in a chain, or with
    {!barrier}. Result: 0. *)

val fdatasync : Unix.file_descr -> t
(** [fdatasync(2)]. As {!fsync}. *)

val sync_range : Unix.file_descr -> off:int -> len:int -> flags:int -> t
(** [sync_file_range(2)]. [flags] is a sum of 1 ([SYNC_FILE_RANGE_WAIT_BEFORE]), 2 ([WRITE]) and 4
    ([WAIT_AFTER]). It does not make data durable as {!fdatasync} does. Result: 0. *)

val openat : ?dir:directory -> ?resolve:int -> string -> flags:int -> perm:int -> t
(** [openat2(2)] with [O_*] flags; [O_CLOEXEC] is always added. See {!open_flags}. [resolve] is of
    [RESOLVE_*]. Result: a descriptor, for {!descriptor_of_result}.

    On io_uring, an open of a FIFO for reading does not wait for a writer. *)

val open_flags : Unix.open_flag list -> int
(** The [O_*] bits of flags. *)

val o_direct : int
(** [O_DIRECT]. *)

external descriptor_of_result : int -> Unix.file_descr = "%identity"
(** The descriptor that {!openat} opened. *)

val close : Unix.file_descr -> t
(** [close(2)]. No other operation on the descriptor may be in flight, except earlier ones of the
    same chain. Result: 0. *)

val statx : ?dir:directory -> string -> flags:int -> mask:int -> Buffer.t -> t
(** [statx(2)] into a buffer of {!Stat.buffer_size} bytes; {!Stat} decodes it and has flags and
    masks. An open file is [~dir:(directory fd)] with the path [""] and {!Stat.empty_path}. Result:
    0.

    @raise Invalid_argument if the buffer is smaller. *)

val fallocate : Unix.file_descr -> mode:int -> off:int -> len:int -> t
(** [fallocate(2)]. [mode] is 0 or a sum of [FALLOC_FL_*]: 1 ([KEEP_SIZE]), 2 ([PUNCH_HOLE], only
    with 1), 8 ([COLLAPSE_RANGE]), 16 ([ZERO_RANGE]), 32 ([INSERT_RANGE]), 64 ([UNSHARE_RANGE]).
    Result: 0. *)

val ftruncate : Unix.file_descr -> int -> t
(** [ftruncate(2)] to a length. Result: 0. *)

val fadvise : Unix.file_descr -> off:int -> len:int -> advice:int -> t
(** [posix_fadvise(2)]. [advice] is one of [POSIX_FADV_*]: 0 ([NORMAL]), 1 ([RANDOM]), 2
    ([SEQUENTIAL]), 3 ([WILLNEED]), 4 ([DONTNEED]), 5 ([NOREUSE]). Result: 0. *)

(** {1 Paths}

    A path with a NUL byte is [Invalid_argument]. *)

val rename : ?dir:directory -> ?new_dir:directory -> ?flags:int -> string -> string -> t
(** [rename path new_path]: [renameat2(2)]. [flags] (default 0) is of [RENAME_*]: 1 ([NOREPLACE]) or
    2 ([EXCHANGE]). [new_path] is relative to [new_dir]. Result: 0. *)

val unlink : ?dir:directory -> string -> t
(** [unlink(2)]. Result: 0. *)

val rmdir : ?dir:directory -> string -> t
(** [rmdir(2)]. Result: 0. *)

val mkdir : ?dir:directory -> string -> perm:int -> t
(** [mkdir(2)]. Result: 0. *)

val link : ?dir:directory -> ?new_dir:directory -> ?follow:bool -> string -> string -> t
(** [link path new_path]: [linkat(2)]. [follow] (default [false]): of a symbolic link, links its
    target. Result: 0. *)

val symlink : ?dir:directory -> target:string -> string -> t
(** [symlink ~target path]: [symlinkat(2)]. Result: 0. *)

(** {1 Other} *)

val nop : t
(** Does nothing. Result: 0. *)

val poll : Unix.file_descr -> int -> t
(** [poll(2)], once, for {!pollin}, {!pollout} ... Result: the events that are ready. *)

val pollin : int
val pollout : int
val pollerr : int
val pollhup : int

val timeout : int -> t
(** Completes this many nanoseconds after its submission. Result: 0. *)

(** {1 Flags} *)

val exact : t -> t
(** Continues a short transfer until all bytes are transferred, the file ends, or an error occurs.
    An error is then the result. *)

val barrier : t -> t
(** Begins after all operations pushed before it have completed; operations pushed after it begin
    after it has completed ([RINGWAY_DRAIN]). *)

val continue_on_error : t -> t
(** In a chain: the next operation begins whatever the result of this one is. *)

val socket : t -> t
(** States that the descriptor of a {!read} or {!write} at {!current_position} is a socket. On
    io_uring the operation then costs no system calls to look up the kind of the file, and raises no
    [SIGPIPE]; on the other backends it changes nothing. For a descriptor that is not a socket the
    result is the same as without it, after one more submission.

    {!Queue.push} raises [Queue.Error] with EINVAL for any other operation. *)

val dont_cache : t -> t
(** A {!read}, {!write}, {!readv} or {!writev} leaves no pages of its own in the page cache
    ([RWF_DONTCACHE]: Linux 6.14, ext4 and XFS). Where that is refused, it is made without:
    {!Queue.explain_dont_cache} has the reason. Direct I/O is not changed.

    {!Queue.push} raises [Queue.Error] with EINVAL for any other operation. *)

val untorn : t -> t
(** A {!write} at an offset is untorn ([RWF_ATOMIC]: Linux 6.11): after a crash the file has all of
    its bytes or none of them. It is never made as a plain write or in parts: the result
    [-EIO] may mean that the kernel has written a part after all.

    {!Queue.push} raises [Queue.Error] with the reason unless the file has such writes, is open for
    direct I/O, and offset, length and buffer suit: see {!Direct_io}. *)

val with_timeout : int -> t -> t
(** [with_timeout ns operation] is cancelled if it has not completed [ns] nanoseconds after its
    submission; its result is then minus ETIMEDOUT. 0: no timeout. *)

val ecanceled : int
(** [ECANCELED]; the result of a cancelled operation is minus this. *)

val name : t -> string
(** The name of the operation, such as ["read"]. *)

(**/**)

(* For Queue: the buffers that the kernel may access until the completion. *)
val buffer : t -> Buffer.t
val buffers : t -> Buffer.t array
