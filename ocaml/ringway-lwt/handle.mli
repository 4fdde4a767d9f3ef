(** An open descriptor and the operations on it. It takes care that operations at the current
    position are performed one after another, as are the reads of a file without one, and its
    writes, and that the descriptor is not closed before its
    operations have ended: its number could otherwise become that of another file. Checks no
    arguments; {!File} and {!Files_unix} do. *)

type t

type memory = Bigarray of Ringway.Buffer.t | Bytes of Bytes.t

val create : ?dont_cache:bool -> ?alone:bool -> Unix.file_descr -> t
(** With [dont_cache] (default [false]), transfers leave no pages in the page cache, and go through
    the queue. With [alone] (default [false]), nobody else has the open file until {!share} or a
    fork. Makes a few system calls that do not block: [statx(2)], [fcntl(2)], and [preadv(2)] of
    no bytes or [lseek(2)]. *)

val share : t -> unit
(** From now on, others may have the open file, and wait at its current position: for a server, for
    example. Until they have gone on, so do all calls at that position, which are not made in the
    loop from now on. *)

val descriptor : t -> Unix.file_descr
val is_closed : t -> bool

val is_seekable : t -> bool
(** Does the file have a current position? Pipes, sockets and terminals do not. They ignore the
    offset of a transfer. *)

(** {1 Transfers}

    Errors have the function name [name]. [pos] is an offset or
    {!Ringway.Operation.current_position}. *)

val read : t -> name:string -> exact:bool -> memory -> int -> int -> pos:int -> int Lwt.t
(** [read t ~name ~exact memory off len ~pos] reads what the page cache has at once, within
    {!Dispatcher.spend}, and the rest through the queue; at the current position only if nobody else
    has the open file. With [exact], a short read is continued
    until the end of the file. *)

val write : t -> name:string -> exact:bool -> memory -> int -> int -> pos:int -> int Lwt.t

val note_written : t -> unit
(** {!Ringway.Page_cache.note_written}. {!write} calls it. Call it after other operations that
    change the time of the last modification. *)

(** {1 Other operations} *)

val run : t -> ?on_end:(unit -> unit) -> string -> Ringway.Operation.t -> (int -> 'a) -> 'a Lwt.t
(** {!Promise.run} with an operation that does not depend on the current position. *)

val seek : t -> int64 -> Unix.seek_command -> int64 Lwt.t
(** [Unix.LargeFile.lseek] on a thread of Lwt, after all earlier operations at the current position
    have ended. *)

val small : string -> int64 -> int Lwt.t
(** [small name position] is the position, as [Unix.lseek] returns it: fails with [EOVERFLOW] if
    it does not fit an [int]. *)

val sync : t -> string -> full:bool -> unit Lwt.t
(** [sync t name ~full] is [fsync(2)] or, without [full], [fdatasync(2)]. [name] is the function
    name of errors.

    Concurrent calls share system calls: one is in flight, and one will be made for all who called
    since it began. An error, which the kernel reports once, is the result of all who waited for
    that system call. If all of them were cancelled, it is the result of the next one. *)

val stat : t -> (Ringway.Buffer.t -> 'a) -> 'a Lwt.t
(** [fstat(2)]. The argument is a function of {!Ringway.Stat}. *)

(** {1 Closing} *)

val is_idle : t -> bool
(** No operation is in flight. *)

val shut : t -> unit Lwt.t
(** Lets no new operation begin: {!is_closed} is true from now on. Waits until those in flight have
    ended. Operations on files without a position, such as pipes, may never end; they are cancelled
    and rejected with [EBADF]. The descriptor stays open. Fails with [EIO] if an operation did not
    end by the close of its queue: the kernel may use the descriptor, which must not be closed. *)
