(** [Lwt_io] with files through the queue: [module Lwt_io = Ringway_lwt.Io] moves a program over.
    What opens a file by its path is replaced; everything else, sockets and standard channels
    included, is [Lwt_io]'s own. The channels are [Lwt_io] channels, with its buffers, defaults and
    exceptions; the kernel fills and empties the buffer of the channel, without a second copy. Paths
    that name a pipe or a character device give [Lwt_io]'s own channels.

    [of_fd] is [Lwt_io]'s own, which uses threads for files. Open files by their paths, or make a
    channel of a {!File}:

    {[
      Lwt_io.make ~mode:Input ~close:(fun () -> File.close file) (File.read file)
    ]}

    Differences:
    - Cached data is read within the call, without a thread.
    - A cancelled read or write of a channel loses no data and writes none twice.
    - [close] of an output channel fails if bytes could not be written, and so does [with_file].
      [Lwt_io] ignores such an error in [close], and when it flushes automatically. *)

include module type of struct
  include Lwt_io
end

val file_length : string -> int64 Lwt.t
(** As [Lwt_io.file_length]. *)

val open_file :
  ?buffer:Lwt_bytes.t ->
  ?flags:Unix.open_flag list ->
  ?perm:Unix.file_perm ->
  mode:'a mode ->
  file_name ->
  'a channel Lwt.t
(** As [Lwt_io.open_file], with the same defaults. Cancelling the promise leaves no descriptor
    open. *)

val with_file :
  ?buffer:Lwt_bytes.t ->
  ?flags:Unix.open_flag list ->
  ?perm:Unix.file_perm ->
  mode:'a mode ->
  file_name ->
  ('a channel -> 'b Lwt.t) ->
  'b Lwt.t
(** As [Lwt_io.with_file]. Fails if bytes could not be written. *)

val open_temp_file :
  ?buffer:Lwt_bytes.t ->
  ?flags:Unix.open_flag list ->
  ?perm:Unix.file_perm ->
  ?temp_dir:string ->
  ?prefix:string ->
  ?suffix:string ->
  unit ->
  (string * output_channel) Lwt.t
(** As [Lwt_io.open_temp_file]. *)

val with_temp_file :
  ?buffer:Lwt_bytes.t ->
  ?flags:Unix.open_flag list ->
  ?perm:Unix.file_perm ->
  ?temp_dir:string ->
  ?prefix:string ->
  ?suffix:string ->
  (string * output_channel -> 'b Lwt.t) ->
  'b Lwt.t
(** As [Lwt_io.with_temp_file]. The file is deleted also if closing the channel fails. *)

val with_atomic_file :
  ?buffer:Lwt_bytes.t ->
  ?perm:Unix.file_perm ->
  file_name ->
  (output_channel -> 'b Lwt.t) ->
  'b Lwt.t
(** [with_atomic_file path f] replaces the file [path], or creates it, by what [f] writes: a reader
    of [path] sees the old contents or all of the new, also after a crash. [f] writes to a temporary
    file in the same directory. When its promise is fulfilled, the file is synced with [fsync(2)]
    and renamed to [path], and the directory is synced.

    If [f], a write or the sync fails or is cancelled, the temporary file is deleted and [path] is
    as before. If only the sync of the directory fails, [path] has the new contents, but a crash may
    bring the old ones back. Once [f] has ended, the promise can no longer be cancelled. If the
    process ends before, a file named like [.NAME.4230e6.tmp] is left behind, where [NAME] is that
    of the file: delete such files when the program starts.

    [perm] defaults to [0o666], of which the umask is subtracted; permissions and owner of a
    previous file are not kept. A symbolic link at [path] is replaced, not followed. [f] does not
    close the channel. *)

val lines_of_file : file_name -> string Lwt_stream.t
(** As [Lwt_io.lines_of_file]. *)

val lines_to_file : file_name -> string Lwt_stream.t -> unit Lwt.t
(** As [Lwt_io.lines_to_file]. *)

val chars_of_file : file_name -> char Lwt_stream.t
(** As [Lwt_io.chars_of_file]. *)

val chars_to_file : file_name -> char Lwt_stream.t -> unit Lwt.t
(** As [Lwt_io.chars_to_file]. *)
