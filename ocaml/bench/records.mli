(** The records of all runs, of which [make ocaml-bench] makes tables and charts
    ([crates/ringway-measure/src/records.rs] describes them). *)

type run = {
  row : Row.t;
  contestant : string;
  round : int;  (** from 1 on; 0: system calls were counted, and nothing else *)
  outcome : (int * string, string) result;  (** the checksum, and figures as JSON; or why not *)
}

val line : run -> string
(** Its record. *)

val of_line : string -> run option
(** The run of a record, unless it failed. *)

val print : run list -> unit
(** All records, on standard output. *)
