(** The report on all runs, as a table for people, Markdown, and JSON. *)

type run = {
  row : Row.t;
  contestant : string;
  round : int;  (** from 1 on; 0: system calls were counted, so its times do not count *)
  outcome : (Sample.t, string) result;
}

(** {1 Figures} *)

val samples : run list -> Row.t -> string -> Sample.t list
(** The timed runs of a contestant that succeeded. *)

val median : (Sample.t -> float) -> Sample.t list -> float
(** Of one figure; [nan] if there are none. *)

val rows : run list -> Row.t list
(** Rows with results, in the order of the runs. *)

(** {1 Reports} *)

val machine : unit -> string
(** Processors, kernel, versions. *)

val print : run list -> unit
(** Tables and the targets, on standard output. *)

val print_failures : run list -> unit

val write_json : string -> run list -> unit
(** All runs, in raw units. *)

val markdown : command:string -> run list -> string
(** Tables for a page. *)

val write_into_page : string -> string -> unit
(** [write_into_page page text] replaces what stands between the lines
    [<!-- ocaml-bench: begin -->] and [<!-- ocaml-bench: end -->] of the page.

    @raise Failure if the page does not have them. *)
