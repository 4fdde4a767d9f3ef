(** Opens and closes files for the readers, writers and channels, which treat files with a position
    and streams such as pipes and terminals differently. *)

type t =
  | Seekable of Unix.file_descr  (** a regular file, a block device, or a directory *)
  | Stream of Lwt_unix.file_descr  (** a pipe, a socket, or a character device *)

val openat :
  ?on_unwanted:(Unix.file_descr -> unit) ->
  string ->
  flags:int ->
  Unix.file_perm ->
  (Unix.file_descr -> 'a) ->
  'a Lwt.t
(** [openat path ~flags perm finish] opens a file with the [O_*] bits [flags] and is fulfilled with
    [finish descriptor]. A descriptor that is opened although the promise was cancelled is given to
    [on_unwanted] (default: {!close_later}). Fails as [Lwt_unix.openfile] does. *)

val openfile : string -> Unix.open_flag list -> Unix.file_perm -> t Lwt.t
(** Fails as [Lwt_unix.openfile] does. *)

val close : Unix.file_descr -> unit Lwt.t
(** No operation on the descriptor may be in flight. The promise cannot be cancelled. If no queue
    can be created, the call closes the descriptor itself, which may block. *)

val close_later : Unix.file_descr -> unit
(** {!close} of a descriptor that nobody waits for. *)

(** {1 What does not wait for a file system} *)

val is_file : Unix.file_descr -> bool
(** Is it a regular file, a directory, a block device or a symbolic link? [false] if it is not
    open. *)

val is_local : Unix.file_descr -> bool
(** Is it a file on a file system that asks nobody before it reads from the page cache? FUSE and
    network file systems may ask for the size of the file first, even if the read must not wait. *)

val page_cache : Unix.file_descr -> Ringway.Page_cache.t option
(** [None] if the file is not local. *)

val read_cached :
  Ringway.Page_cache.t option -> Ringway.Buffer.t -> off:int -> len:int -> pos:int -> int
(** Reads at an offset from the page cache, within what one iteration of the loop may copy. The
    result is the number of bytes: fewer than [len] at the end of the file, or where no more are
    cached. It is negative if nothing could be read at once, and the read needs a queue.

    @raise Unix.Unix_error or [Ringway.Queue.Error] as {!Promise.dispatcher}. *)

val is_open : Unix.file_descr -> bool

val seek : Unix.file_descr -> int64 -> Unix.seek_command -> int64 Lwt.t
(** [Unix.LargeFile.lseek]. The promise cannot be cancelled. *)
