(** What one run of one contestant used, as it is measured in its process. *)

type t = {
  ns : int;  (** run time *)
  ops : int;  (** operations: reads of files, messages of the echo server *)
  bytes : int;
  user_ns : int;  (** CPU time of all threads, as the context switches *)
  system_ns : int;
  voluntary : int;
  involuntary : int;
  calls : int;  (** system calls; -1: not counted *)
  peak_rss : int;  (** KiB *)
  minor_words : float;  (** allocated *)
  promoted_words : float;  (** of these, moved to the major heap because they were in use *)
  major_words : float;  (** allocated in the major heap directly *)
  check : int;  (** checksum of the data; 0: the run has checked the data *)
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

val figures : Row.t -> t -> (string * float) list
(** All but the system calls. *)

val counted : t -> (string * float) list
(** System calls per operation, if they were counted. *)

(** Opened when the set-up is done, closed when the work is. *)
module Window : sig
  type sample := t
  type t

  val create : unit -> t
  (** Call it first of all in the process: system calls of threads that exist already are not
      counted. They are counted only in a process with [RINGWAY_BENCH_COUNT] in its environment,
      since counting takes time. *)

  val start : t -> unit
  val stop : t -> ops:int -> bytes:int -> check:int -> sample
end
