(** Buffers for transfers of [Bytes], which the kernel cannot access: the garbage collector may move
    them. At most 16 MiB of unused buffers are kept. *)

val take : int -> Ringway.Buffer.t
(** [take n] has at least [n] bytes with unspecified contents, and is aligned for direct I/O. *)

val give : Ringway.Buffer.t -> unit
(** Gives back a buffer of {!take}. The kernel no longer accesses it. *)
