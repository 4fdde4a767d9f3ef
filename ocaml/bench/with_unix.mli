(** The contestant [Unix]: blocking system calls, one at a time. *)

val run : Row.t -> (Job.t -> Sample.t) option
(** [None] for rows with more than one promise or connection. *)
