(** The contestants of ringway. Each function is [run] of a contestant: [None] for rows that it has
    nothing for. *)

val file : Row.t -> (Job.t -> Sample.t) option
(** [File] with a Bigarray. *)

val bytes : Row.t -> (Job.t -> Sample.t) option
(** [File] with [Bytes]. *)

val reader : Row.t -> (Job.t -> Sample.t) option
(** [Reader] and [Writer]. *)

val io : Row.t -> (Job.t -> Sample.t) option
