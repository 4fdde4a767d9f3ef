(** The contestants on Lwt that read through [Lwt_unix] or [Lwt_io], or modules of ours with the
    same functions. Each function is [run] of a contestant: [None] for rows that it has nothing
    for. *)

(** How a program reads files with [Lwt_unix]; [Ringway_lwt.Unix] has it too. *)
module type LWT_UNIX = sig
  val openfile : string -> Unix.open_flag list -> Unix.file_perm -> Lwt_unix.file_descr Lwt.t
  val read : Lwt_unix.file_descr -> Bytes.t -> int -> int -> int Lwt.t
  val pread : Lwt_unix.file_descr -> Bytes.t -> file_offset:int -> int -> int -> int Lwt.t
end

val lwt_unix : Row.t -> (Job.t -> Sample.t) option
val like_lwt_unix : (module LWT_UNIX) -> Row.t -> (Job.t -> Sample.t) option
(** Files only. *)

val lwt_io : Row.t -> (Job.t -> Sample.t) option

val channels :
  (string -> buffer:Lwt_bytes.t -> (Lwt_io.input_channel -> unit Lwt.t) -> unit Lwt.t) ->
  Row.t ->
  (Job.t -> Sample.t) option
(** Files only, with a function as [Lwt_io.with_file]. *)

(** {1 For other contestants on Lwt} *)

val accept_all :
  Unix.file_descr -> (Lwt_unix.file_descr -> unit Lwt.t) -> unit
(** Accepts connections of a listening socket for ever, and serves them. *)

val echo :
  Job.t -> connections:int -> ((unit -> bool) -> Unix.file_descr -> unit) -> Sample.t
(** [echo job ~connections serve] runs a server until the time is over. [serve tick socket] starts
    it; it calls [tick] for each message. *)

val measure : Job.t -> (Bytes.t -> (int * int) Lwt.t) -> Sample.t
(** Runs a promise for the bytes that were read and their sum. Its argument is a block to read
    into. *)

val sum_all : Bytes.t -> (Bytes.t -> int -> int -> int Lwt.t) -> (int * int) Lwt.t
(** [sum_all block read] reads to the end, block by block: the bytes and their sum. *)

val tcp : mib:int -> Job.t -> (Lwt_unix.file_descr -> Bytes.t -> (int * int) Lwt.t) -> Sample.t
(** {!measure} for the bytes of one connection. *)

val random_reads :
  Job.t -> promises:int -> (int -> (int -> unit Lwt.t) Lwt.t) -> Sample.t
(** [random_reads job ~promises reader]: [reader number] makes the function with which that promise
    reads and checks the block at a position. *)
