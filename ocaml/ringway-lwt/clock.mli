(** The monotonic clock. *)

val now_ns : unit -> int
(** [clock_gettime(CLOCK_MONOTONIC)] in nanoseconds. Does not allocate. *)
