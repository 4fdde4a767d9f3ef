(** Runs code in another domain. *)

val run : ((unit -> 'a) -> 'a) option
(** [None] before OCaml 5. *)
