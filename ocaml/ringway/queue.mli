(** A queue for asynchronous file I/O over io_uring, Linux AIO or threads, neutral of any scheduler:
    push operations, submit them, reap their completions.

    {1 Rules}

    - {b Memory.} The queue keeps the buffers of an operation alive until its completion is reaped,
      whatever becomes of the program's own references. The program does not access them meanwhile.
      Paths and arrays are copied by {!push}.
    - {b Descriptors.} The program keeps the descriptor of an operation open until its completion.
    - {b Domains and threads.} A queue belongs to the domain that created it. Its functions raise
      {!Misuse} in another domain, and while another thread is inside one of them.
    - {b Blocking.} {!push} and {!cancel} make no system call. {!submit}, {!wait}, {!reap}, {!create}
      and {!close} release the runtime lock.
    - {b Signals.} A signal ends {!wait} and {!reap} early, so that its handler runs.
    - {b Fork.} In a forked child every function but {!close} fails with [ECHILD]. *)

type t

type op = private int
(** Identifies one operation of a queue. No other operation of the queue has had the same one. *)

val no_op : op
(** Identifies no operation: {!cancel} returns [false] for it. *)

val slot : op -> int
(** [slot op] is a small number, at least 0 and less than {!capacity}, that no other operation has
    until the completion of [op] is reaped: an index for tables. *)

exception Full
(** There are as many operations as {!capacity}: reap, then push again. *)

exception Misuse of string
(** The queue is used from another domain, by two threads at the same time, or after {!close}. *)

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
      of the work on that thread. Default: [false].
    - [close_wait_ms]: the longest that {!close} waits. Default: 5000.
    - [faults]: for tests, faults to inject. Only a library built for tests has it.

    @raise Error if the backend is refused or an option is out of range. *)

val close : t -> unit
(** Cancels the operations in flight and waits for their ends, at most [close_wait_ms]. Completions
    that were not reaped are dropped. Buffers of operations that did not end stay allocated for the
    life of the process, since the kernel still accesses them. Closing a queue twice does nothing.

    A queue that the program forgets is closed, without waiting, when the garbage collector finds
    it. *)

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
    @raise Invalid_argument for an empty chain, or one longer than {!capacity}. *)

val submit : t -> unit
(** Submits all pushed operations, with one system call on io_uring and Linux AIO. *)

val cancel : t -> op -> bool
(** Requests that an operation be cancelled; the request is submitted by the next {!submit}, {!wait}
    or {!reap}. Its completion still arrives: with minus ECANCELED, or with its result if it could
    not be stopped. [false] if the operation has completed. *)

(** {1 Completions} *)

(** Completions that were reaped. One value is created once and used again for each {!reap}. *)
module Completions : sig
  type t

  val create : int -> t
  (** [create n] has room for [n] completions.

      @raise Invalid_argument if [n] is not positive. *)

  val op : t -> int -> op
  (** [op completions i] is the operation of the [i]th completion. *)

  val result : t -> int -> int
  (** [result completions i] is its result: 0 or more, or minus an errno. *)
end

val wait : t -> min:int -> timeout_ns:int -> unit
(** [wait queue ~min ~timeout_ns] submits all pushed operations and waits until at least [min]
    completions are ready, a signal arrives, or [timeout_ns] nanoseconds have passed (0: does not
    wait; negative: no timeout). It never waits for more operations than are in flight. The
    completions stay in the queue for {!take}. *)

val take : t -> Completions.t -> int
(** Moves completions that {!wait} has found into [completions], from index 0 on, and returns their
    number. Makes no system call and allocates nothing. *)

val reap : t -> Completions.t -> min:int -> timeout_ns:int -> int
(** {!wait}, unless completions are left from a previous one, then {!take}. *)

val error : int -> Unix.error
(** [error result] is the error of a negative result. *)

(** {1 Event loops} *)

val descriptor : t -> Unix.file_descr
(** A descriptor that is readable when completions may be ready. It belongs to the queue: do not
    read or close it. From the first call on there are no lost wakeups; spurious ones are possible.
    When it is readable, call {!reap} with [~min:0 ~timeout_ns:0] until it returns 0. Call {!submit}
    before waiting for it. *)

(** {1 Information} *)

type stats = {
  pushed : int;  (** operations *)
  delivered : int;  (** operations whose completion was delivered *)
  in_flight : int;  (** operations pushed and not delivered *)
  system_calls : int;  (** system calls made for I/O, also by threads *)
  retries : int;  (** results retried: EINTR, EAGAIN, unrequested ECANCELED *)
  continued : int;  (** short transfers that were continued *)
  to_threads : int;  (** operations that the backend does not support *)
  late : int;  (** stale completions *)
}

val stats : t -> stats
val backend : t -> backend

val in_flight : t -> int
(** Operations pushed whose completion has not been taken. *)

val explain : t -> string
(** Describes the backend, what is available, and what was refused, with reason and fix. *)

val library_version : string
(** The version of the C library. *)
