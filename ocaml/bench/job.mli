(** One run of one contestant, in a process of its own: what the contestants share. *)

type t = {
  window : Sample.Window.t;
  path : string;  (** the file; [""] if the row has none *)
  blocks : int;  (** of {!Row.read_block} bytes in the file, for random reads *)
  seconds : float;  (** that rows without a fixed amount of data are measured *)
}

val sum : int -> Bytes.t -> int -> int -> int
(** [sum so_far bytes 0 len] is the seed's checksum: it adds each byte. *)

val sum_buffer : int -> Ringway.Buffer.t -> int -> int -> int

(** Measures operations for a time, after the same operations for a fifth of the time. *)
module Meter : sig
  type job := t
  type t

  val create : job -> bytes_per_op:int -> t

  val tick : t -> bool
  (** Counts an operation; [false] when the time is over. Its first call begins the time. *)

  val sample : t -> Sample.t
  (** When the time is over. *)
end

(** The positions of random reads, the same in each run. *)
module Positions : sig
  type job := t
  type t

  val create : job -> number:int -> t
  (** Of the promise with this number. *)

  val next : t -> int
end

(** {1 TCP} *)

val listen : connections:int -> Unix.file_descr
(** A socket that listens on the loopback interface. *)

val start_peer : Unix.file_descr -> string -> int -> unit
(** [start_peer socket "send" bytes] or [start_peer socket "echo" connections] starts the peer, a C
    program, and restricts this process to another processor if there are two. *)

val end_peer : unit -> unit
