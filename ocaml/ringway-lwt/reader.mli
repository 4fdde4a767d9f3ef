(** Reads a file or a connection through a buffer of fixed size. The end of the data is a value,
    [`Eof]; errors are [Unix.Unix_error] with the errno of the system call.

    {b Files} are read from the page cache within the call where they are cached, and through the
    queue otherwise; the kernel reads ahead by itself. {b Connections} are received through the
    ring if [Engine] is installed, and with [Lwt_unix] otherwise.

    A reader serves one call at a time: concurrent calls wait for their turn, in order.

    {b Cancelling} a promise of a reader rejects it and loses no data: what arrives nevertheless is
    kept for the next call.

    A reader that the program forgets is not closed. *)

type t

val default_buffer_size : int
(** 32 KiB. *)

(** {1 Opening} *)

val open_file : ?buffer_size:int -> ?flags:Unix.open_flag list -> string -> t Lwt.t
(** Opens a file for sequential reading from its beginning. [flags] default to
    [[O_RDONLY; O_CLOEXEC]].

    Fails with [Unix.Unix_error (_, "open", path)], as [Lwt_unix.openfile] does.

    @raise Invalid_argument if [buffer_size] is not positive. *)

val with_file :
  ?buffer_size:int -> ?flags:Unix.open_flag list -> string -> (t -> 'a Lwt.t) -> 'a Lwt.t
(** [with_file path f] closes the reader when the promise of [f] is resolved. *)

val of_connection :
  ?buffer_size:int -> ?close:(unit -> unit Lwt.t) -> Lwt_unix.file_descr -> t
(** Reads from a connected socket or a pipe. [close] defaults to closing the descriptor; nothing
    else may read from it.

    @raise Invalid_argument if [buffer_size] is not positive. *)

(** {1 Reading}

    All functions fail with [Unix.Unix_error (EBADF, "read", "")] after {!close}. *)

val read : t -> ?off:int -> ?len:int -> Bytes.t -> [ `Ok of int | `Eof ] Lwt.t
(** [read t bytes] reads at least one byte and at most [len], to [off]. The range defaults to all of
    [bytes]. It waits only if there is no byte. [`Ok 0] if [len] is 0. A file that has grown can be
    read after [`Eof].

    @raise Invalid_argument if the range is outside of [bytes]. *)

val read_buffer : t -> ?off:int -> ?len:int -> Ringway.Buffer.t -> [ `Ok of int | `Eof ] Lwt.t
(** As {!read}. *)

val read_exactly : t -> ?off:int -> ?len:int -> Bytes.t -> [ `Ok | `Eof of int ] Lwt.t
(** As {!read}, but reads [len] bytes. [`Eof n]: the data ended after [n] bytes, less than [len].

    If it fails or is cancelled, the data stays in the reader. *)

val read_char : t -> [ `Ok of char | `Eof ] Lwt.t

val read_until : t -> char -> [ `Ok of string * bool | `Eof ] Lwt.t
(** [read_until t delimiter] reads up to the next [delimiter], which is not part of the string, or
    to the end of the data; the [bool] is true if there was a delimiter. There is no limit of the
    length but memory: do not use it for peers that you do not trust. If it fails or is cancelled,
    the data stays in the reader. *)

val read_line : t -> [ `Ok of string | `Eof ] Lwt.t
(** As {!read_until} for ["\n"] or ["\r\n"]. *)

val buffered : t -> int
(** The bytes in the buffer. *)

(** {1 Closing} *)

val close : t -> unit Lwt.t
(** Closes the reader. Calls in progress fail with [EBADF]. Waits for the end of the operation in
    flight, which it cancels, then closes the descriptor. Further calls return the same promise. *)

val is_closed : t -> bool
