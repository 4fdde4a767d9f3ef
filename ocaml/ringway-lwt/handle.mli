(** An open descriptor and the operations on it. It takes care that operations at the current
    position are performed one after another, and that the descriptor is not closed before its
    operations have ended: its number could otherwise become that of another file. Checks no
    arguments; {!File} and {!Files_unix} do. *)

type t

type memory = Bigarray of Ringway.Buffer.t | Bytes of Bytes.t

val create : Unix.file_descr -> t
(** Makes two system calls that do not block, [lseek(2)] and [fcntl(2)]. *)

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
    {!Dispatcher.spend}, and the rest through the queue. With [exact], a short read is continued
    until the end of the file. *)

val write : t -> name:string -> exact:bool -> memory -> int -> int -> pos:int -> int Lwt.t

val is_cached : t -> bool
(** Can {!Ringway.Page_cache} have the data of this file? Not of files open for direct I/O, nor of
    those without a position. *)

(** {1 Other operations} *)

val run : t -> ?on_end:(unit -> unit) -> string -> Ringway.Operation.t -> (int -> 'a) -> 'a Lwt.t
(** {!Promise.run} with an operation that does not depend on the current position. *)

val seek :
  t ->
  (Unix.file_descr -> 'a -> Unix.seek_command -> 'a) ->
  'a ->
  Unix.seek_command ->
  'a Lwt.t
(** [seek t unix_seek offset whence] calls [Unix.lseek] or [Unix.LargeFile.lseek] after all earlier
    operations at the current position have ended. *)

val stat : t -> (Ringway.Buffer.t -> 'a) -> 'a Lwt.t
(** [fstat(2)]. The argument is a function of {!Ringway.Stat}. *)

(** {1 Closing} *)

val is_idle : t -> bool
(** No operation is in flight. *)

val shut : t -> unit Lwt.t
(** Lets no new operation begin: {!is_closed} is true from now on. Waits until those in flight have
    ended. Operations on files without a position, such as pipes, may never end; they are cancelled
    and rejected with [EBADF]. The descriptor stays open. *)
