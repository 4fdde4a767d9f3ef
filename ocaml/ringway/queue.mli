(** A queue for asynchronous file I/O over io_uring, Linux AIO or threads, neutral of any scheduler:
    push operations, submit them, reap their completions.

    {1 Rules}

    - {b Memory.} The queue keeps the buffers of an operation alive until its completion is taken,
      whatever becomes of the program's own references and of the queue. The program does not access
      them meanwhile. Paths and arrays are copied by {!push}.
    - {b Descriptors.} The program keeps the descriptor of an operation open until its completion.
    - {b Domains and threads.} A queue belongs to the domain that created it, or to the last that
      called {!adopt}. Its functions, except {!close} and {!adopt}, raise {!Misuse} in another
      domain. All raise it while another thread is inside one of them.
    - {b Blocking.} {!push} and {!cancel} do not wait. A push may ask the kernel about a file
      or its file system with short system calls, and hand an operation to a thread. {!submit},
      {!wait}, {!reap}, {!create} and {!close} release the runtime lock. Only {!wait}, {!reap} and
      {!close} wait.
    - {b Signals.} A signal ends {!wait} and {!reap} early, and its handler runs. The kernel may
      end them without a signal, too: wait again. A signal that arrives just before the wait
      begins does not end it: a program that depends on it writes to a descriptor from its handler
      and polls that. A handler may raise, and may use the queue.
      Whatever it interrupts, no operation and no completion is lost; see {!Completions.length}.
    - {b Fork.} In a forked child every function but {!close} and {!in_flight} raises {!Error} with
      [ECHILD]. {!close} frees the child's copy, closes the descriptors that the child inherited
      with it, and does not affect the parent. If another thread was inside a function of the queue
      during the fork, they stay open. *)

type t

type op = private int
(** Identifies one operation of a queue. A queue uses a value again only after 2{^38} operations. *)

val no_op : op
(** Identifies no operation: {!cancel} returns [false] for it. *)

val slot : op -> int
(** [slot op] is a small number, at least 0 and less than {!capacity}, that no other operation has
    until the completion of [op] is taken: an index for tables. One {!take} frees the slots of all
    completions that it returns. Read the entries of all of them before the next {!push}, which may
    write to one of them. *)

exception Full
(** There are as many operations as {!capacity}: reap, then push again. *)

exception Misuse of string
(** The queue is used from another domain, by two threads at the same time, by another thread than
    the creating one with [single_issuer], or after {!close}. *)

exception Error of { operation : string; error : Unix.error; message : string }
(** A function of the queue has failed. [message] describes the failure, with a fix where one is
    known. *)

(** {1 Creating a queue} *)

type backend = Uring | Kaio | Threads | Null
(** How operations reach the kernel. [Null] completes every operation without performing it; only a
    library built for tests has it. *)

val backend_name : backend -> string

val create :
  ?backend:backend ->
  ?entries:int ->
  ?completion_entries:int ->
  ?capacity:int ->
  ?threads:int ->
  ?sync_threads:int ->
  ?single_issuer:bool ->
  ?close_wait_ms:int ->
  ?faults:string ->
  unit ->
  t
(** [create ()] uses the first of io_uring, Linux AIO and threads that passes a real read, or the
    backend that the environment variable [RINGWAY_BACKEND] names.

    - [entries]: the most operations that one system call submits. Default: 64.
    - [completion_entries]: completions that the kernel holds without extra cost. Default:
      [4 * entries].
    - [capacity]: the most operations in flight. Default: 1024.
    - [threads], [sync_threads]: the most threads, started as needed. Defaults: 64 and 4.
    - [single_issuer]: only the calling thread will use the queue, which lets the kernel do its part
      of the work on that thread. Other threads may close it. Default: [false].
    - [close_wait_ms]: the longest that {!close} waits. Default: 5000.
    - [faults]: for tests, faults to inject. Only a library built for tests has it.

    A number of 0 is the default, except of [close_wait_ms] (does not wait) and [capacity].

    @raise Error if the backend is refused, or an option is out of range for it.
    @raise Invalid_argument if a number is negative or over 32 bits, or if [capacity] is 0 or more
    than 16777215. *)

val close : t -> unit
(** Cancels the operations in flight and waits for their ends, at most [close_wait_ms]. Completions
    that were not reaped are dropped, and what they have opened is closed. Closing a queue twice
    does nothing.

    Operations that did not end are counted by {!unfinished}. The kernel still accesses their
    buffers, which stay allocated for the life of the process, and their descriptors. The program
    leaves both alone.

    A queue that the program forgets is closed by the garbage collector. That does not wait: it
    cancels the operations in flight, and closes the queue when they have ended, some collections
    later. With [single_issuer], only a collection on the creating thread does.

    @raise Misuse while another thread is inside a function of the queue. *)

val close_reporting : t -> (op * int option) list
(** As {!close}, and tells what has become of each operation whose completion was not taken:
    [Some result], or [None] if it did not end. The program owns what an {!Operation.openat} of the
    list has opened. If the queue has failed, minus [ECANCELED] is the result of operations of which
    it is unknown whether they took effect. In a forked child, the result of operations that go on
    in the parent is [None].

    @raise Misuse as {!close}. *)

val unfinished : t -> int
(** The number of operations that had not ended when the queue was closed; 0 before. In a forked
    child, those that go on in the parent. *)

val adopt : t -> unit
(** Makes the calling domain the one that the queue belongs to. The program makes sure that no other
    domain uses the queue any more. Does not help with [single_issuer], which means a thread.

    @raise Misuse while another thread is inside a function of the queue, or after {!close}. *)

val capacity : t -> int

(** {1 Operations} *)

val push : t -> Operation.t -> op
(** Adds an operation. Does not submit it and does not block.

    @raise Full if no slot is free.
    @raise Error if the queue has failed. Errors of the system call are in the completion. *)

val push_chain : t -> Operation.t array -> op array
(** Adds operations each of which begins after the one before it has succeeded. After one that fails
    or transfers less than requested, the rest complete with minus ECANCELED.

    @raise Full if there are not enough free slots; none of the operations is added.
    @raise Error as {!push}; none of the operations is added.
    @raise Invalid_argument for an empty chain, or one longer than {!capacity}. *)

val submit : t -> unit
(** Submits all pushed operations and cancellations, with one system call on io_uring and Linux AIO.
    Does not wait.

    @raise Error if the system call fails: [ENOMEM], [EAGAIN] and [EBUSY] are temporary, others
    mean that the queue has failed. No operation is lost; after a failure, {!close} the queue. *)

val cancel : t -> op -> bool
(** Requests that an operation be cancelled; the request is submitted by the next {!submit}, {!wait}
    or {!reap}. Its completion still arrives: with minus ECANCELED, or with its result if it could
    not be stopped. [false] if the operation has completed.

    On io_uring, the kernel has let go of the file of a cancelled {!Operation.poll} when that
    {!submit}, {!wait} or {!reap} returns; closing the descriptor then closes the file. On the other
    backends it has when the completion arrives. *)

val cancel_all : t -> int
(** {!cancel} for all operations. Returns the number of those for which it is [true]. *)

(** {1 Completions} *)

(** Completions that were taken. One value is created once and used again for each {!reap}. *)
module Completions : sig
  type t

  val create : int -> t
  (** [create n] has room for [n] completions.

      @raise Invalid_argument if [n] is not positive. *)

  val length : t -> int
  (** The number of completions that the last {!take} has stored; 0 while {!reap} has stored none
      yet. If a signal handler raises during {!reap}, this many have been taken. *)

  val clear : t -> unit
  (** Sets {!length} to 0: for programs whose signal handlers raise, when they have processed the
      completions. *)

  val op : t -> int -> op
  (** [op completions i] is the operation of the [i]th completion.

      @raise Invalid_argument if there is no room for that many. *)

  val result : t -> int -> int
  (** [result completions i] is its result: 0 or more, or minus an errno.

      @raise Invalid_argument if there is no room for that many. *)
end

val wait : t -> min:int -> timeout_ns:int -> unit
(** [wait queue ~min ~timeout_ns] submits all pushed operations and cancellations and waits until at
    least [min] completions are ready, a signal arrives, or [timeout_ns] nanoseconds have passed (0:
    does not wait; negative: no timeout). It never waits for more operations than are in flight, nor
    for more than 256. The completions stay in the queue for {!take}; those of an earlier {!wait}
    count.

    @raise Error as {!submit}. *)

val take : t -> Completions.t -> int
(** Moves completions that {!wait} has found into [completions], from index 0 on, and returns their
    number. Makes no system call and allocates nothing. *)

val reap : t -> Completions.t -> min:int -> timeout_ns:int -> int
(** {!wait}, then {!take}. *)

val error : int -> Unix.error
(** [error result] is the error of a negative result. *)

(** {1 Event loops} *)

val descriptor : t -> Unix.file_descr
(** A descriptor that is readable when completions may be ready. It belongs to the queue: do not
    read or close it. From the first call on there are no lost wakeups; spurious ones are possible.
    When it is readable, call {!reap} with [~min:0 ~timeout_ns:0] until it returns 0. Call {!submit}
    before waiting for it. With io_uring, [Unix.select] of it may fail with [EINTR] although no
    signal arrived: wait again.

    @raise Error if no descriptor is left. *)

(** {1 Registered memory and files} *)

val register_buffers : t -> Buffer.t array -> unit
(** Registers memory as fixed buffers of the ring: the kernel looks up its pages once, rather than
    for each transfer. Transfers within one of the buffers use it automatically. The buffers stay
    alive until the queue is closed.

    @raise Error with [EOPNOTSUPP] if the queue has no ring, [ENOMEM] for more than
    [RLIMIT_MEMLOCK] allows, [ENOSPC] for more than 64 registrations, [EINVAL] for no buffers or one
    that is empty or longer than 1 GiB. The queue works without a registration, too. *)

val register_file : t -> Unix.file_descr -> unit
(** Registers a descriptor with the ring: the kernel looks it up once, rather than for each
    operation. Unregister it before you close it. Registering it twice does nothing.

    @raise Error with [EOPNOTSUPP] (no ring), [ENOSPC] (more than 64) or [EBADF]. *)

val unregister_file : t -> Unix.file_descr -> unit
(** Ends the registration of a descriptor.

    @raise Error with [ENOENT] (not registered) or [EBUSY] (operations on it are in flight). *)

(** {1 Information} *)

type stats = {
  pushed : int;  (** operations *)
  delivered : int;  (** operations whose completion was taken *)
  in_flight : int;  (** operations pushed and not taken *)
  system_calls : int;  (** system calls made for I/O, also by threads *)
  retries : int;  (** results retried: EINTR, EAGAIN, unrequested ECANCELED *)
  continued : int;  (** short transfers that were continued *)
  to_threads : int;
      (** operations that the backend does not support, or whose submission would have waited *)
  late : int;  (** stale completions *)
}

val stats : t -> stats
val backend : t -> backend

val in_flight : t -> int
(** Operations pushed whose completion has not been taken; 0 after {!close}. *)

val explain : t -> string
(** Describes the backend and what forced it, if it is not the best available one; what is
    available; and what was refused, with reason and fix. *)

val explain_dont_cache : t -> Unix.file_descr -> string option
(** Why transfers of a file are made without {!Operation.dont_cache}, with reason and fix; [None] if
    the kernel has not refused it so far. The queue remembers that while the file is registered
    ({!register_file}) or an operation on it is in flight, and then tries again. *)

val version : string
(** The version of the C library. *)
