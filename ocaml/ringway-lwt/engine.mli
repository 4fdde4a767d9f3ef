(** An engine for Lwt on io_uring: sockets, timers, file operations and the wait itself in one
    system call for each iteration of the event loop. Programs for Lwt run on it unchanged.

    {[
      let () =
        match Ringway_lwt.Engine.install () with
        | Ok () -> ()
        | Error reason -> prerr_endline reason
    ]}

    Without it, as in a container that refuses io_uring, the operations of this library run over the
    engine that Lwt has chosen.

    {1 What it does}

    - {b Readiness} is level-triggered as with Lwt's own engines: a callback is called in every
      iteration in which its descriptor is ready. Each wait arms a one-shot poll operation for each
      descriptor that has fired since the last one, in the system call that waits. (Linux 6.13 and
      later deliver about 20 events for each call.) Multishot polls are not used. They would save a
      few percent of the CPU time, but they report a descriptor only when new data arrives, so that
      data that was read in part would be forgotten.
    - {b Closing.} An armed poll holds its file. Stopping an event therefore cancels its poll at
      once, with a system call if it has not fired, so that a [close(2)] after it takes effect: the
      peer sees the end of the connection, and the address of a listening socket is free. Stop the
      events of a descriptor before you close it, as [Lwt_unix.close] does.
    - {b Errors.} A descriptor with an error or a hang-up is both readable and writable. The
      callbacks of one that is not open are called once. A regular file is always ready.
    - {b Timers} run on the monotonic clock, before the callbacks of descriptors, in the order of
      their times. A repeating timer keeps its rhythm; periods that were missed are skipped. One
      with a period of 0 runs once in each iteration. A negative delay has ended, before one of 0;
      an infinite one, [nan], or one of more than 30 years never ends.
    - {b Exceptions} of callbacks go to [Lwt.async_exception_hook] and stop nothing, except
      [Out_of_memory], [Stack_overflow] and [Sys.Break], which [Lwt_main.run] raises, as does what a
      signal handler raises while the loop waits. The loop can be run again after that; no event is
      lost.
    - {b Signals} end the wait, so that their handlers run. As with every engine, a signal that
      arrives in the instant before the wait begins does not, unless [Lwt_unix.on_signal] handles
      it.
    - {b Threads and domains.} The loop may run in one thread or domain after another; operations in
      flight, events and timers go on. If it is run in a second thread while it waits in the first,
      as by a program that ends, the first goes on with the operations of both.
    - {b Fork.} A forked child gets a ring of its own. Events and timers stay. File operations in
      flight go on in the parent; in the child they are rejected with [Lwt.Canceled], and what a
      writer or a channel was writing counts as written.
    - {b Failures.} If the ring fails, the engine puts Lwt's default engine in its place, with all
      events and timers. File operations whose results are lost fail with [EIO] and are not
      repeated. {!explain} gives the reason.
    - {b Capacity.} At most 262,144 polls and operations are in flight. *)

val install : unit -> (unit, string) result
(** Makes the engine Lwt's engine, with all events and timers of the previous one. It can be called
    at any time, also while the loop runs. The delays of timers begin anew, as always in
    [Lwt_engine.set].

    [Error] is the reason why this process cannot use io_uring, with the fix where one is known, or
    that the environment variable [RINGWAY_BACKEND] names another backend, or none that exists;
    nothing has changed then. [Ok ()] if it is installed already. *)

val remove : unit -> unit
(** Puts Lwt's default engine in its place, with all events and timers. File operations in flight
    go on. Does nothing if the engine is not {!installed}. [Lwt_engine.set] with another engine does
    the same. *)

val installed : unit -> bool

val explain : unit -> string
(** Describes the ring if the engine is {!installed}; otherwise, why not. The engine needs io_uring,
    and forces it by the option of the queue. *)

type stats = {
  iterations : int;  (** of the event loop *)
  polls : int;  (** poll operations armed *)
  cancelled : int;  (** poll operations cancelled because their events were stopped *)
  rings : int;  (** rings created: 1, and 1 more in a forked child *)
  queue : Ringway.Queue.stats option;
      (** of the current ring; [None] if another thread waits in it, or another process has it *)
}

val stats : unit -> stats option
(** Statistics of the engine that is {!installed}. *)
