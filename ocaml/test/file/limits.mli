(** Limits and refusals, for a child process. *)

val refuse : io_uring:bool -> aio:bool -> unit
(** [io_uring_setup(2)] or [io_setup(2)] fail with [EPERM] from now on, as in a container. *)

val set_descriptors : int -> unit
(** [RLIMIT_NOFILE]. *)

val fail_enters : int -> try_again:bool -> unit
(** The next so many calls of [io_uring_enter(2)] that do not wait fail, with [EAGAIN] or
    [ENOMEM]. *)

val failing_enters : unit -> int
(** How many of those are left. *)

val no_timers : bool -> unit
(** Does [timerfd_create(2)] fail, with [EMFILE]? *)

val wait : int -> Unix.process_status
(** Waits for a child. The end of another one, which Lwt handles, does not end the wait. *)

val in_child : ?fork:(unit -> int) -> (unit -> unit) -> unit
(** Runs the function in a child of [fork], by default [Lwt_unix.fork]. Fails if that fails, or does
    not end within 60 seconds. *)
