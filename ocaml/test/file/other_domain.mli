(** Runs a function on another thread, and in another domain where OCaml has domains. *)

val run : (unit -> unit) -> unit
(** Waits for its end. Raises what it raises. *)
