(** Files. *)

type t

val openfile : string -> Unix.open_flag list -> Unix.file_perm -> t Lwt.t
val pread : t -> Ringway.Buffer.t -> pos:int -> int -> int -> int Lwt.t
val close : t -> unit Lwt.t
