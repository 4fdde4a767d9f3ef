(** One operation at a time on behalf of a reader, a writer or a channel. The operation outlives the
    promise that waits for it: its result is recorded also if that promise was cancelled, so no
    received byte is lost and no byte is written twice. *)

type t

val create : unit -> t

val is_running : t -> bool

val start : t -> Ringway.Operation.t -> (int -> unit) -> unit
(** [start t operation finish] starts the operation. [finish] is called once with its result: 0 or
    more, or minus an errno. No other operation may be running.

    @raise Unix.Unix_error or [Ringway.Queue.Error] if the operation cannot be started, as
    {!Promise.dispatcher}. *)

val prepare : t -> Ringway.Operation.t -> (int -> unit) -> Dispatcher.request
(** [prepare t operation finish] is an operation for {!restart}. *)

val restart : t -> Dispatcher.request -> unit
(** As {!start}, for an operation that is started again and again. *)

val wait : t -> unit Lwt.t
(** Is fulfilled when the running operation has ended and its [finish] has been called; at once if
    none is running. At most one promise waits at a time.

    Cancelling the promise rejects it. The operation goes on for the next call: a program that
    cancels in each iteration of the loop would otherwise receive nothing. *)

val wait_or_cancel : t -> unit Lwt.t
(** As {!wait}, but cancelling the promise also requests that the operation be cancelled: for
    operations on memory of the program. *)

val stop : t -> exn -> unit Lwt.t
(** Rejects the promise that waits, requests that the operation be cancelled, and waits for its end.
    A promise of [stop] cannot be cancelled. *)

val close : t -> (unit -> unit Lwt.t) -> unit Lwt.t
(** Closes the descriptor with the function, after {!stop}. Fails with [EIO] without doing so if an
    operation did not end by the close of its queue: the kernel may use the descriptor. *)

(** {1 Turns} *)

val locked : Lwt_mutex.t -> (unit -> 'a Lwt.t) -> 'a Lwt.t
(** [Lwt_mutex.with_lock], with fewer promises while nobody else waits. *)

val wait_locked : t -> Lwt_mutex.t -> (unit -> 'a Lwt.t) -> 'a Lwt.t
(** [wait_locked t mutex f] is [wait t >>= f], and then unlocks [mutex], which the caller has
    locked. An operation must be running. Makes one promise if that of [f] does not sleep. *)
