(** Promises for operations, with the exceptions of {!Unix}. *)

val run :
  ?on_unwanted:(int -> unit) ->
  ?on_end:(unit -> unit) ->
  string ->
  string ->
  Ringway.Operation.t ->
  (int -> 'a) ->
  'a Lwt.t
(** [run name argument operation finish] starts the operation on the {!Dispatcher.current}
    dispatcher. The promise is fulfilled with [finish result], or rejected with what that raises,
    with [Unix.Unix_error (code, name, argument)], or with [Lwt.Canceled] if the result is
    ECANCELED.

    Cancelling the promise rejects it at once and requests that the operation be cancelled. If the
    operation succeeds nevertheless, [on_unwanted] is called with its result.

    [on_end] is called once the operation has ended, also if it could not be started: the kernel no
    longer accesses its buffer and its descriptor. *)

val fail : string -> string -> int -> 'a Lwt.t
(** [fail name argument result] is rejected as {!run} rejects for a negative result. *)

val exn : string -> string -> int -> exn
(** The exception of {!fail}. *)
