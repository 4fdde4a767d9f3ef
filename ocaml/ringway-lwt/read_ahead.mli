(** Asks the kernel to read ahead of a sequential reader. The data goes to the page cache, so the
    memory of the process stays bounded by its buffer. Asks only where a read has missed the
    cache. *)

type t

val create : Unix.file_descr -> t

val missed : t -> pos:int -> unit
(** The data at [pos] is not cached and is about to be read. Does not block.

    @raise Ringway.Queue.Error if the request cannot be started. *)

val stop : t -> unit Lwt.t
(** Ends the request in flight, before the descriptor is closed. *)
