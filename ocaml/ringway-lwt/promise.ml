open Ringway

let exn name argument result =
  if result = -Operation.ecanceled then Lwt.Canceled
  else Unix.Unix_error (Queue.error result, name, argument)

let fail name argument result = Lwt.fail (exn name argument result)

let settle promise resolver name argument finish on_unwanted on_end result =
  if not (Lwt.is_sleeping promise) then begin
    if result >= 0 then on_unwanted result;
    on_end ()
  end
  else if result < 0 then begin
    on_end ();
    Lwt.wakeup_later_exn resolver (exn name argument result)
  end
  else
    match finish result with
    | value ->
        on_end ();
        Lwt.wakeup_later resolver value
    | exception exn ->
        on_end ();
        Lwt.wakeup_later_exn resolver exn

let run ?(on_unwanted = ignore) ?(on_end = ignore) name argument operation finish =
  (* A signal handler may raise anywhere here. *)
  try
    let promise, resolver = Lwt.task () in
    let dispatcher = Dispatcher.current () in
    let request =
      Dispatcher.prepare operation
        (settle promise resolver name argument finish on_unwanted on_end)
    in
    match
      Dispatcher.restart dispatcher request;
      Lwt.on_cancel promise (fun () -> Dispatcher.cancel dispatcher request)
    with
    | () -> promise
    | exception exn when Dispatcher.is_pending request ->
        (* [settle] ends it. *)
        Lwt.cancel promise;
        Dispatcher.cancel dispatcher request;
        Lwt.fail exn
  with exn ->
    on_end ();
    Lwt.fail exn
