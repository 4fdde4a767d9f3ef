(** Operations on paths. Errors are [Unix.Unix_error] with the code, the function name and the
    argument that [Unix] gives; a path with a NUL byte is [ENOENT]. Relative paths start from the
    directory that is current when the event loop submits the operation.

    Cancelling a promise rejects it at once; the operation may still take effect. *)

val stat : string -> Unix.stats Lwt.t
(** @raise Unix.Unix_error also [EOVERFLOW] if the size does not fit an [int]. *)

val lstat : string -> Unix.stats Lwt.t
(** As {!stat}; of a symbolic link, the link itself. *)

val large_stat : string -> Unix.LargeFile.stats Lwt.t
val large_lstat : string -> Unix.LargeFile.stats Lwt.t

val exists : string -> bool Lwt.t
(** [false] if {!stat} fails with a [Unix.Unix_error], whatever its code. *)

val rename : string -> string -> unit Lwt.t
val unlink : string -> unit Lwt.t

val link : string -> string -> unit Lwt.t
(** [link path new_path]. A symbolic link is linked itself, not its target. *)

val symlink : string -> string -> unit Lwt.t
(** [symlink target path]. *)

val mkdir : string -> Unix.file_perm -> unit Lwt.t
val rmdir : string -> unit Lwt.t
