(** Decodes the result of {!Operation.statx} into the records of {!Unix}. *)

val buffer_size : int
(** The bytes that {!Operation.statx} needs. *)

val empty_path : int
(** [AT_EMPTY_PATH]: an empty path names the directory descriptor itself. *)

val no_follow : int
(** [AT_SYMLINK_NOFOLLOW]. *)

val basic : int
(** [STATX_BASIC_STATS]: all fields of [Unix.stats]. *)

val stats : Buffer.t -> Unix.stats
(** @raise Unix.Unix_error [EOVERFLOW] if the size does not fit an [int]. *)

val large : Buffer.t -> Unix.LargeFile.stats
