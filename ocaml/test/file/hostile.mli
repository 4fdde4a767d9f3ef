(** The file system of [crates/ringway-hostile], whose misbehaviour a case sets. *)

val with_mount : (string -> unit) -> unit
(** Mounts one and calls the function with its directory, then unmounts it. Where that is
    impossible, prints that the case is skipped, and why. *)

val set : string -> string -> unit
(** [set directory rule] adds a rule. *)

val requests : string -> string -> int
(** [requests directory operation]: how often the operation was requested. *)
