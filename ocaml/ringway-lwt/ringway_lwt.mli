(** Files, sockets and timers of Lwt in one event loop on io_uring; files also over Linux AIO and
    threads, below any engine of Lwt.

    Name the modules in full rather than opening this one, which has a [Unix] of its own. *)

module Engine = Engine
module File = File
module Path = Path
module Io = Io
module Reader = Reader
module Writer = Writer
module Tcp = Tcp

module Unix = Files_unix
(** [Lwt_unix] with file operations of this library. *)

(** {1 For other libraries} *)

module Dispatcher = Dispatcher
module Promise = Promise
module Clock = Clock
