(** Runs operations of a {!Ringway.Queue} under Lwt: starts them, calls back with their results, and
    keeps operations that find the queue full until there is room.

    A dispatcher is driven in one of two ways. Our own engine calls {!submit_and_wait} and
    {!deliver} once for each iteration of the loop. An {!attach}ed dispatcher works with any engine:
    before each iteration it submits what was started, and the engine watches the queue's
    descriptor.

    Lwt is one per process, and so is the {!current} dispatcher. The loop may run in one thread or
    domain after another; the dispatcher follows it, with the operations in flight. If the loop runs
    in a second thread while the first still waits, the first goes on with the operations of
    both. *)

type t

type request
(** An operation that was started. *)

val create : Ringway.Queue.t -> t
(** [create queue] owns the queue. It was created without [single_issuer]: the loop may move to
    another thread. *)

val queue : t -> Ringway.Queue.t

(** {1 The current dispatcher} *)

val current : unit -> t
(** The dispatcher for new operations. If there is none that {!is_usable}, a new one is created and
    attached, on the best backend; after a queue has failed, on the next one.

    @raise Ringway.Queue.Error if no queue can be created. *)

val set_current : ?renew:(unit -> unit) -> t option -> unit
(** Makes a dispatcher the {!current} one. After [None], the next {!current} creates one. The
    previous one goes on until its operations have ended. If it is attached, it closes its queue
    then.

    [renew] is called by {!current} when the dispatcher cannot be used any more. It may create
    another one and make it current; otherwise {!current} abandons the dispatcher and creates one
    itself. *)

val is_usable : t -> bool
(** False in a forked child of the process that created the dispatcher, while it {!is_busy}, and
    when its queue is closed. If it is true, the dispatcher belongs to the calling thread and domain
    from now on. *)

val is_busy : t -> bool
(** Another thread is waiting in the queue, or submits. Operations can be started and cancelled
    nevertheless; that thread goes on with them. *)

val wake : unit -> unit
(** Ends the wait of another thread in the loop. *)

val explain : unit -> string
(** Why queues have failed, and {!Ringway.Queue.explain} of the current one. After a failure the
    dispatcher itself forces the next backend, by the option. *)

(** {1 Operations} *)

val start : t -> Ringway.Operation.t -> (int -> unit) -> request
(** [start t operation callback] starts the operation. [callback] is called once, from the event
    loop, with its result: 0 or more, minus an errno, or one of those below. The kernel no longer
    accesses the buffer and the descriptor of the operation, unless {!keeps_memory} of the result.
    See {!guard} for exceptions of the callback.

    @raise Ringway.Queue.Error if the queue rejects the operation. *)

(** {2 Results that are no errno}

    They are negative. *)

val refused : int
(** The operation waited for room in the queue, which then refused it. Nothing of it took place. *)

val refusal : unit -> exn
(** In a callback whose result is {!refused}: the {!Ringway.Queue.Error} that {!start} raises for
    an operation that need not wait.

    @raise Invalid_argument elsewhere. *)

(** {2 Results of operations whose queue was closed}

    They are negative and no errno, too. An operation with such a result may have taken effect: it
    is never repeated. *)

val fork_generation : unit -> int
(** Another number in a forked child. *)

val in_parent : int
(** In a forked child, of an operation that was in flight in the parent, where it goes on. What it
    writes is written once, by the parent. *)

val unknown : int
(** The queue has failed. The operation has ended, but its result is lost. *)

val unfinished : int
(** The queue was closed, and the operation did not end. The kernel may access its buffer and its
    descriptor for the life of the process. *)

val is_lost : int -> bool
(** Is the result {!unknown} or {!unfinished}? *)

val keeps_memory : int -> bool
(** May the buffer of an operation with this result not be used for another one? That is so after
    {!unfinished}, and after {!in_parent}: kernels before 6.5 may still write to memory that parent
    and child share. *)

val no_request : request
(** A request that was never started and must not be: a value for fields that have none yet. *)

val name : request -> string
(** {!Ringway.Operation.name}. *)

val is_pending : request -> bool
(** Was it started, and its callback not called yet? *)

val prepare : Ringway.Operation.t -> (int -> unit) -> request
(** [prepare operation callback] is a request for {!restart}. Makes nothing happen. *)

val prepare_poll : Ringway.Operation.t -> (int -> unit) -> request
(** As {!prepare}, for an operation without a buffer that is restarted again and again. The
    dispatcher may refer to it for long after its end, and to what the callback refers to. *)

val restart : t -> request -> unit
(** Starts the operation of a request as {!start} does, and allocates nothing. The request must not
    be in flight, except on a dispatcher that was abandoned or has failed: its callback is not
    called for that one, then. *)

val cancel : t -> request -> unit
(** Requests that an operation be cancelled. Its callback is still called. Does nothing after
    that. *)

val in_flight : t -> int
(** Requests whose callback has not been called. *)

val has_only_polls : t -> bool
(** Nothing is in flight but operations of {!prepare_poll}. *)

val spend : t -> int -> bool
(** [spend t bytes] permits the caller to transfer so many bytes at once, without the queue. It
    returns [false] when the budget of this iteration of the loop is spent, so that a program that
    finds all its data in the page cache cannot keep the loop from sockets and timers. *)

(** {1 Driving it} *)

val submit_and_wait : t -> block:bool -> timeout_ns:int -> unit
(** Submits what was started and, if [block], waits for a completion, at most [timeout_ns]
    (negative: without limit). Does not wait if something is left to {!deliver}, or if nothing is in
    flight. Returns early if the kernel is short of memory or takes nothing at the moment; what was
    not submitted is submitted by the next call.

    @raise Ringway.Queue.Error if the queue has failed. The dispatcher is closed then, and no longer
    current; callbacks are called after the next pause, with the results of operations that have
    ended, or with {!unknown} or {!unfinished}. *)

val submit : t -> unit
(** Submits what was started and cancelled. A failure is noticed by the next iteration; so is a
    queue of another process. *)

val cancel_at_once : t -> request -> unit
(** {!cancel}, and {!submit}: a read of a stream takes nothing that is written after this, unless
    another thread is in the loop, or the kernel takes nothing at the moment. *)

val deliver : t -> unit
(** Calls the callbacks of the completions that {!submit_and_wait} has found. If it raises, the rest
    is left for the next call. *)

val guard : ('a -> unit) -> 'a -> unit
(** [guard callback argument] calls a callback of the program. What it raises goes to
    [Lwt.async_exception_hook], except [Out_of_memory], [Stack_overflow] and [Sys.Break]: those
    {!guard} raises. *)

val attach : t -> unit
(** Lets Lwt's engine drive the dispatcher. Does nothing if it is attached or closed. *)

val attach_later : t -> unit
(** {!attach}es the dispatcher after the next pause, when Lwt's engine has been replaced. If it is
    {!current}, it is no longer then, and closes when its operations have ended. If it cannot be
    attached, it is {!abandon}ed. *)

val detach : t -> unit
(** Ends {!attach}. *)

val abandon : t -> unit
(** Closes the queue. Callbacks of operations in flight are called after the next pause, with their
    results, usually minus ECANCELED, or with {!unfinished}; in a forked child with {!in_parent},
    and the parent's operations go on. *)

val is_forked : t -> bool
(** True in a forked child of the process that created the dispatcher. *)
