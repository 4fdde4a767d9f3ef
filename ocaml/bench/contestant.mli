(** Whoever takes part in the benchmark. *)

type t = {
  name : string;
  about : string;
  environment : (string * string) list;  (** of its process, in addition *)
  prepare : unit -> unit;  (** called first in its process *)
  run : Row.t -> (Job.t -> Sample.t) option;  (** [None]: it has nothing for the row *)
}

val all : t list
val find : string -> t option

val reference : string
(** The contestant with which the others are compared. *)
