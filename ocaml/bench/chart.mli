(** The three figures of the seed, as SVG: run time, relative run time and context switches of the
    checksum of a cached file, against the size of the file. *)

val write : string -> Report.run list -> string list
(** [write directory runs] returns the files it has written; none if fewer than two sizes were
    measured. *)
