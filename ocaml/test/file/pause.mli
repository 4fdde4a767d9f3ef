(** How long the loop stands still. *)

val longest : (unit -> unit Lwt.t) -> float Lwt.t
(** The longest time, in seconds, for which the loop's thread was blocked and the loop has not run
    while the function works. Other programs that use the processors hardly change it. *)
