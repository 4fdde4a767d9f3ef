(** Runs operations of a {!Ringway.Queue} under Lwt: starts them, calls back with their results, and
    keeps operations that find the queue full until there is room.

    A dispatcher is driven in one of two ways. Our own engine calls {!submit_and_wait} and
    {!deliver} once for each iteration of the loop. An {!attach}ed dispatcher works with any engine: before each iteration it
    submits what was started, and the engine watches the queue's descriptor. *)

type t

type request
(** An operation that was started. *)

val create : Ringway.Queue.t -> t

val queue : t -> Ringway.Queue.t

(** {1 The dispatcher of a domain} *)

val current : unit -> t
(** The dispatcher of the calling domain. If there is none yet, or this is a forked child of the
    process that created it, a new one is created on the best backend and attached.

    @raise Ringway.Queue.Error if no queue can be created. *)

val set_current : t option -> unit
(** Makes a dispatcher the {!current} one of the calling domain. After [None], the next {!current}
    creates one. The previous one goes on until its operations have ended. *)

(** {1 Operations} *)

val start : t -> Ringway.Operation.t -> (int -> unit) -> request
(** [start t operation callback] starts the operation. [callback] is called once, from the event
    loop, with its result: 0 or more, or minus an errno. What it raises goes to
    [Lwt.async_exception_hook]. *)

val no_request : request
(** A request that was never started and must not be: a value for fields that have none yet. *)

val prepare : Ringway.Operation.t -> (int -> unit) -> request
(** [prepare operation callback] is a request for {!restart}. Makes nothing happen. *)

val restart : t -> request -> unit
(** Starts the operation of a request as {!start} does, and allocates nothing. The request must not
    be under way: it is new, or its callback has been called. *)

val cancel : t -> request -> unit
(** Requests that an operation be cancelled. Its callback is still called. Does nothing after
    that. *)

val in_flight : t -> int
(** Requests whose callback has not been called. *)

val spend : t -> int -> bool
(** [spend t bytes] permits the caller to transfer so many bytes at once, without the queue. It
    returns [false] when the budget of this iteration of the loop is spent, so that a program that
    finds all its data in the page cache cannot keep the loop from sockets and timers. *)

(** {1 Driving it} *)

val submit_and_wait : t -> block:bool -> timeout_ns:int -> unit
(** Submits what was started and, if [block], waits for a completion, at most [timeout_ns]
    (negative: without limit). Does not wait if completions are left from a call that an exception
    ended, or if nothing is in flight. *)

val deliver : t -> unit
(** Calls the callbacks of the completions that {!submit_and_wait} has found. *)

val guard : ('a -> unit) -> 'a -> unit
(** [guard callback argument] calls a callback of the program. What it raises goes to
    [Lwt.async_exception_hook], except [Out_of_memory], [Stack_overflow] and [Sys.Break]: those
    {!guard} raises. *)

val attach : t -> unit
(** Lets Lwt's engine drive the dispatcher. Does nothing if it is attached. *)

val detach : t -> unit
(** Ends {!attach}. *)

val abandon : t -> unit
(** For a forked child: closes the child's copy of the queue. Callbacks of operations of the parent
    are called with minus ECANCELED after the next pause. *)

val is_forked : t -> bool
(** True in a forked child of the process that created the dispatcher. *)
