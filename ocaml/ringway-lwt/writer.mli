(** Writes to a file or a connection through a buffer of fixed size. Nothing is written before the
    buffer is full, {!flush}, {!fsync} or {!close}. Unlike a channel of [Lwt_io], a writer is not
    flushed automatically: {!flush} before you wait for an answer. Bytes reach the file or
    connection in the order of the calls; short writes are continued.

    Connections are sent through the ring if [Engine] is installed, and with [Lwt_unix] otherwise.
    As with [Unix.write], writing to one that the peer has closed may raise SIGPIPE, which ends the
    process. Programs with connections ignore it: [Sys.set_signal Sys.sigpipe Sys.Signal_ignore].

    A writer serves one call at a time: concurrent calls wait for their turn, in order.

    {b Errors.} The first error of the system is final: every later call but {!close} fails with it
    too, since what follows a gap is not written. It is a [Unix.Unix_error] with the errno: [ENOSPC]
    also for a device that accepts no more bytes without an error.

    {b Cancelling} a promise of a writer rejects it. What it had added to the buffer stays there and
    is written once.

    A writer that the program forgets is not flushed. *)

type t

val default_buffer_size : int
(** 32 KiB. *)

(** {1 Opening} *)

val open_file :
  ?buffer_size:int -> ?flags:Unix.open_flag list -> ?perm:Unix.file_perm -> string -> t Lwt.t
(** Opens a file for writing. [flags] default to [[O_WRONLY; O_CREAT; O_TRUNC; O_CLOEXEC]], [perm]
    to [0o666], of which the umask is subtracted.

    Fails with [Unix.Unix_error (_, "open", path)], as [Lwt_unix.openfile] does.

    @raise Invalid_argument if [buffer_size] is not positive. *)

val with_file :
  ?buffer_size:int ->
  ?flags:Unix.open_flag list ->
  ?perm:Unix.file_perm ->
  string ->
  (t -> 'a Lwt.t) ->
  'a Lwt.t
(** [with_file path f] closes the writer when the promise of [f] is resolved. *)

val of_connection :
  ?buffer_size:int -> ?close:(unit -> unit Lwt.t) -> Lwt_unix.file_descr -> t
(** Writes to a connected socket or a pipe. [close] defaults to closing the descriptor; nothing else
    may write to it.

    @raise Invalid_argument if [buffer_size] is not positive. *)

(** {1 Writing}

    All functions fail with [Unix.Unix_error (EBADF, "write", "")] after {!close}. *)

val write : t -> ?off:int -> ?len:int -> string -> unit Lwt.t
(** Adds [len] bytes from [off] on; the range defaults to all of the string. Waits while the buffer
    is full.

    @raise Invalid_argument if the range is outside of the string. *)

val write_bytes : t -> ?off:int -> ?len:int -> Bytes.t -> unit Lwt.t
(** As {!write}. The bytes may be changed when the promise is resolved. *)

val write_buffer : t -> ?off:int -> ?len:int -> Ringway.Buffer.t -> unit Lwt.t
(** As {!write}. A range as large as the buffer is written without a copy, after the bytes before
    it. Do not change it before the promise is resolved. If that promise is cancelled, a part of the
    range may have been written, and the kernel may read the range a little longer. *)

val write_char : t -> char -> unit Lwt.t

val flush : t -> unit Lwt.t
(** Waits until the bytes of all earlier calls are written. *)

val fsync : t -> unit Lwt.t
(** {!flush}, then [fsync(2)]. Fails with [EINVAL] on a connection. *)

val buffered : t -> int
(** The bytes in the buffer. *)

(** {1 Closing} *)

val close : t -> unit Lwt.t
(** Waits for earlier calls, flushes, and closes. Fails if bytes could not be written, with the
    error that the writer has failed with; it is closed nevertheless. Further calls return the same
    promise, and cancelling one does nothing to the writer. *)

val abort : t -> unit Lwt.t
(** Closes without {!flush}. Calls in progress fail with [EBADF]. Waits for the end of the operation
    in flight, which it cancels. *)

val is_closed : t -> bool
