(** Runs blocks of the page. *)

val blocks : (int * (unit -> unit)) list -> unit
(** Runs each block, given with its line, in a process and a directory of its own, in which there is
    a file [data] of 1 MiB. The program exits with 1 if one of them fails, and also if there is
    none. *)
