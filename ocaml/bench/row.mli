(** A row of the benchmark: what is done, whoever does it. *)

type t =
  | Checksum of { mib : int; cold : bool }
      (** Sums the bytes of a file that is read in blocks of {!checksum_block} bytes. *)
  | Reads of { direct : bool; promises : int }
      (** Random reads of {!read_block} bytes, cached or with [O_DIRECT]; so many at a time. *)
  | Tcp of { mib : int }  (** Sums the bytes of one TCP connection. *)
  | Echo of { connections : int }
      (** A server that returns messages of {!message} bytes; one under way on each connection. *)

val checksum_block : int
val read_block : int
val message : int

val to_string : t -> string
(** Its name on the command line, such as ["direct/32"]. *)

val of_string : string -> t option

val title : t -> string
(** A heading. *)

val operation : t -> string
(** The word for one of the operations that are counted, such as ["read"]. *)

val is_stream : t -> bool
(** Its speed is given in MB/s, not in operations a second. *)

val standard : t list
(** The rows of a run without options. *)

val full : t list

val check : t list
(** One small row of each kind. *)

(** The file of a row. *)
module Data : sig
  val mib : t -> reads_mib:int -> int option
  (** Its size in MiB; [reads_mib] for random reads. [None]: no file. *)

  val create : string -> mib:int -> unit
  (** Fills a file with pseudo-random data, each block of {!read_block} bytes beginning with its
      number. *)

  val check : Ringway.Buffer.t -> pos:int -> unit
  (** @raise Failure if the buffer does not begin with the number of the block at [pos]. *)

  val check_bytes : Bytes.t -> pos:int -> unit
end
