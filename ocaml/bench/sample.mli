(** What one run of one contestant used, as it is measured in its process. *)

type t = {
  check : int;  (** checksum of the data; 0: the run has checked the data *)
  figures : (string * float) list;
}

(** {1 Figures} *)

(** Names. *)

val rate : Row.t -> string
(** Operations, or MB, per second. *)

val cpu : string
val switches : string

val switches_and_one : string
(** For a logarithmic scale. *)

val calls : string
val major_words : string
val seconds : string

(** Opened when the set-up is done, closed when the work is. *)
module Window : sig
  type sample := t
  type t

  val create : Row.t -> t
  (** Call it first of all in the process: system calls of threads that exist already are not
      counted. They are counted only in a process with [RINGWAY_BENCH_COUNT] in its environment,
      which measures nothing else, since counting takes time. *)

  val start : t -> unit

  val stop : t -> ops:int -> bytes:int -> check:int -> sample
  (** After so many operations: reads of files, messages of the echo server. CPU time and context
      switches are those of all threads; [minor words] were allocated, [promoted] ones of these
      moved to the major heap because they were in use, and [major] ones allocated there. *)
end
