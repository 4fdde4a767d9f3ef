(** [Lwt_unix] with file operations through the ring, or the best backend that {!Ringway.Queue}
    finds. A program moves over with

    {[ module Lwt_unix = Ringway_lwt.Unix ]}

    All types are those of [Lwt_unix], so values can be passed to and from code that still uses
    [Lwt_unix] itself. Such code, like other libraries and channels of [Lwt_io.of_fd], uses threads
    for files.

    {b Replaced}, for regular files, directories and block devices: [openfile], [close], [state],
    [read], [pread], [write], [pwrite], [write_string], [pwrite_string], [read_bigarray],
    [write_bigarray], [lseek], [ftruncate], [fsync], [fdatasync], [fstat]; and for paths: [stat],
    [lstat], [file_exists], [rename], [unlink], [link], [symlink], [mkdir], [rmdir]; also in
    [LargeFile]; and [dup2].

    {b Everything else is [Lwt_unix]'s}: sockets, pipes and character devices, which the functions
    above pass on to [Lwt_unix]; and what the kernel has no asynchronous operation for: [truncate]
    of a path, [utimes], [access], [chmod], [chown], [opendir], [readdir], [lockf] and so on, which
    run on the threads of [Lwt_unix]. So do [readv] and [writev], because [Lwt_unix.IO_vectors.t] is
    abstract.

    Results and exceptions are those of [Lwt_unix]. These differ:

    - Transfers at the current position, and [lseek], are performed in the order of the calls.
    - A promise can be cancelled; see {!File}.
    - [close] waits for the operations in flight, so that none of them can reach another file that
      gets the same number. They complete as usual. The descriptor is [Closed] at once.
    - The async method ([Lwt_unix.with_async_none] ...) and [set_blocking] have no effect on files.
    - A path with a NUL byte is [ENOENT], as in [Unix]; [Lwt_unix] ends the path there.
    - On io_uring, [openfile] of a FIFO for reading does not wait for a writer.

    The kind of a file is determined once for each [file_descr]. Do not replace the file below one
    with [Stdlib.Unix.dup2]; {!dup2} of this module may do it. *)

include module type of struct
    include Lwt_unix
  end
  with module LargeFile := Lwt_unix.LargeFile

module LargeFile : module type of struct
  include Lwt_unix.LargeFile
end
