(** The contestants of ringway: [File], [Reader], [Io] and [Unix] of [Ringway_lwt]. Each function is
    [run] of a contestant: [None] for rows that it has nothing for. *)

val file : Row.t -> (Job.t -> Sample.t) option
