(** What the benchmark needs from the system and {!Unix} does not have. *)

type usage = { user_ns : int; system_ns : int; voluntary : int; involuntary : int }
(** CPU time and context switches of all threads of the process. *)

val usage : unit -> usage

val peak_rss : unit -> int
(** The most memory that the process has had, in KiB ([VmHWM]). *)

type counter
(** Counts system calls of the process. *)

val count_calls : unit -> counter option
(** Counts those of the calling thread and of the threads that it starts from now on, not those of
    other processes. [None] without the permission to count (root). *)

val calls : counter -> int

val open_direct : string -> Unix.file_descr
(** Opens a file to read it with [O_DIRECT]. *)

val drop_cache : string -> unit
(** Writes the file to the disk and drops it from the page cache ([posix_fadvise(2)]). *)

val use_first_processor : unit -> unit
(** Restricts the calling thread and those it starts to one processor. *)

val pread : Unix.file_descr -> Ringway.Buffer.t -> int -> pos:int -> int
(** [pread fd buffer len ~pos] is [pread(2)], with the runtime lock released. *)
