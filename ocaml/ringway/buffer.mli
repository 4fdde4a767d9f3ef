(** Memory for transfers. A buffer is a Bigarray of characters, as [Lwt_bytes.t] and [Bigstringaf.t]
    are. Its bytes are outside the OCaml heap, so the garbage collector does not move them while the
    kernel accesses them. *)

type t = (char, Bigarray.int8_unsigned_elt, Bigarray.c_layout) Bigarray.Array1.t

val create : int -> t
(** [create n] has [n] bytes with unspecified contents.

    @raise Invalid_argument if [n] is negative. *)

val create_aligned : ?align:int -> int -> t
(** [create_aligned n] has [n] bytes and begins at a multiple of [align] (default 4096), as direct
    I/O requires. [align] is a power of two.

    @raise Invalid_argument if [n] is negative or [align] is not a power of two. *)

val empty : t
(** A buffer of 0 bytes. *)

val length : t -> int

val sub : t -> int -> int -> t
(** [sub buffer off len] shares its memory with [buffer].

    @raise Invalid_argument if the range is outside of [buffer]. *)

val blit : t -> int -> t -> int -> int -> unit
(** [blit src src_off dst dst_off len] copies [len] bytes, also within one buffer. Allocates
    nothing.

    @raise Invalid_argument if a range is outside of its buffer. *)

val blit_to_bytes : t -> int -> Bytes.t -> int -> int -> unit
(** [blit_to_bytes src src_off dst dst_off len] copies [len] bytes.

    @raise Invalid_argument if a range is outside of its buffer. *)

val blit_from_bytes : Bytes.t -> int -> t -> int -> int -> unit
(** [blit_from_bytes src src_off dst dst_off len] copies [len] bytes.

    @raise Invalid_argument if a range is outside of its buffer. *)

val blit_from_string : string -> int -> t -> int -> int -> unit
(** As {!blit_from_bytes}. *)

val of_string : string -> t

val to_string : t -> string
