(** Promises for operations, with the exceptions of {!Unix}. *)

val run :
  ?cancel:(Dispatcher.t -> Dispatcher.request -> unit) ->
  ?on_unwanted:(int -> unit) ->
  ?on_end:(unit -> unit) ->
  ?on_result:(int -> unit) ->
  string ->
  string ->
  Ringway.Operation.t ->
  (int -> 'a) ->
  'a Lwt.t
(** [run name argument operation finish] starts the operation on the {!Dispatcher.current}
    dispatcher. The promise is fulfilled with [finish result], or rejected with what that raises,
    with [Unix.Unix_error (code, name, argument)], or with [Lwt.Canceled] if the result is
    ECANCELED or {!Dispatcher.in_parent}. The code is [EIO] if the result {!Dispatcher.is_lost}, and
    [EMFILE], [ENFILE], [ENOMEM] or [EAGAIN] if the system has no resources for a queue. An
    operation that the queue refuses is rejected with {!Ringway.Queue.Error}, which says why, also
    if it had to wait for room in the queue first.

    Cancelling the promise rejects it at once and requests with [cancel], by default
    {!Dispatcher.cancel}, that the operation be cancelled. If the operation succeeds nevertheless,
    [on_unwanted] is called with its result.

    [on_end] is called once the operation has ended, also if it could not be started: its buffer can
    be used for another one. It is not called for a result that {!Dispatcher.keeps_memory}.

    [on_result] is called after it, once and always, with the result; that of an operation that
    could not be started is minus ECANCELED. The kernel no longer uses the descriptor, unless the
    result is {!Dispatcher.unfinished}. *)

val dispatcher : string -> string -> Dispatcher.t
(** [dispatcher name argument] is {!Dispatcher.current}, with the exceptions of {!run}.

    @raise Ringway.Queue.Error if no queue can be created for another reason. *)

val fail : string -> string -> int -> 'a Lwt.t
(** [fail name argument result] is rejected as {!run} rejects for a negative result. *)

val exn : string -> string -> int -> exn
(** The exception of {!fail}. For {!Dispatcher.refused} only within the callback. *)
