(** Whoever takes part in the benchmark. *)

exception Unavailable of string
(** This system does not allow what the contestant needs; with the reason. *)

type t = {
  name : string;
  about : string;
  environment : (string * string) list;  (** of its process, in addition *)
  prepare : unit -> unit;  (** called first in its process; raises {!Unavailable} *)
  run : Row.t -> (Job.t -> Sample.t) option;  (** [None]: it has nothing for the row *)
}

val all : t list
val find : string -> t option

val reference : string
(** The contestant with which the others are compared. *)
