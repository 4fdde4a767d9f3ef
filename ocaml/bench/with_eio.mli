(** The contestant [Eio], on its backend [eio_linux], where that is installed. *)

val run : Row.t -> (Job.t -> Sample.t) option
(** [None] for every row where it is not. *)
