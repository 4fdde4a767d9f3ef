open Ringway

let exn name argument result =
  if result = -Operation.ecanceled || result = Dispatcher.in_parent then Lwt.Canceled
  else if result = Dispatcher.refused then Dispatcher.refusal ()
  else if Dispatcher.is_lost result then Unix.Unix_error (EIO, name, argument)
  else Unix.Unix_error (Queue.error result, name, argument)

let fail name argument result = Lwt.fail (exn name argument result)

(* What Unix raises where the system is out of descriptors, memory or threads. Other errors of a
   queue have explanations that a Unix_error would lose. *)
let dispatcher name argument =
  try Dispatcher.current () with
  | Queue.Error { error = (EMFILE | ENFILE | ENOMEM | EAGAIN) as error; _ } ->
      raise (Unix.Unix_error (error, name, argument))

(* Called once for each operation. *)
let end_with on_end on_result result =
  if not (Dispatcher.keeps_memory result) then on_end ();
  on_result result

let settle promise resolver name argument finish on_unwanted ended result =
  if not (Lwt.is_sleeping promise) then begin
    if result >= 0 then on_unwanted result;
    ended result
  end
  else if result < 0 then begin
    ended result;
    Lwt.wakeup_later_exn resolver (exn name argument result)
  end
  else
    match finish result with
    | value ->
        ended result;
        Lwt.wakeup_later resolver value
    | exception exn ->
        ended result;
        Lwt.wakeup_later_exn resolver exn

let run ?(cancel = Dispatcher.cancel) ?(on_unwanted = ignore) ?(on_end = ignore)
    ?(on_result = ignore) name argument operation finish =
  (* A signal handler may raise anywhere here. *)
  try
    let promise, resolver = Lwt.task () in
    let dispatcher = dispatcher name argument in
    let request =
      Dispatcher.prepare operation
        (settle promise resolver name argument finish on_unwanted (end_with on_end on_result))
    in
    match
      Dispatcher.restart dispatcher request;
      Lwt.on_cancel promise (fun () -> cancel dispatcher request)
    with
    | () -> promise
    | exception exn when Dispatcher.is_pending request ->
        (* [settle] ends it. *)
        Lwt.cancel promise;
        Dispatcher.cancel dispatcher request;
        Lwt.fail exn
  with exn ->
    end_with on_end on_result (-Operation.ecanceled);
    Lwt.fail exn
