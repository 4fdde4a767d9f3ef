(** A value of which each domain has its own. *)

type 'a t

val create : (unit -> 'a) -> 'a t
(** [create initial] has the value [initial ()] in each domain, computed at its first use there. *)

val get : 'a t -> 'a
val set : 'a t -> 'a -> unit
