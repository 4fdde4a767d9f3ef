(** How a suite runs. [RINGWAY_TEST_WAY] is [engine]: with our engine installed; or [uring], [kaio]
    or [threads]: over Lwt's engine, with a queue on this backend. Default: [uring]. *)

val run : ?limit:int -> string -> (string * (unit -> unit)) list -> unit
(** [run name cases] runs the cases with alcotest. If this machine refuses the way, it prints the
    reason and runs none; where CI is set, that is a failure. A case that hangs ends the process
    after [limit] seconds (default 180). *)

val set_up : unit -> (unit, string) result
(** Prepares this process for the way, for a program that runs no cases; or the reason why not. *)

val is : string -> bool
(** Is this the way? *)

val skip : string -> unit
(** Prints that a case is skipped, and why. *)

val lwt : (unit -> unit Lwt.t) -> unit -> unit
(** A case that runs in the event loop. *)

val directory : string
(** A directory for the files of this process; removed at the end. *)

val backends : unit -> Ringway.Queue.backend list
(** Those of a queue that a case creates itself: the one of the way. *)

val remove : string -> unit
(** Removes a file, or a directory with all below it. *)

val read_file : string -> string

val number : Unix.file_descr -> int
(** The number of a descriptor. *)
