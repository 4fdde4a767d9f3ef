(** The number of the calling domain. *)

val self : unit -> int
(** [self ()] is the number of the calling domain; 0 before OCaml 5. Does not allocate. *)
