open Ringway

let exn name argument result =
  if result = -Operation.ecanceled then Lwt.Canceled
  else Unix.Unix_error (Queue.error result, name, argument)

let fail name argument result = Lwt.fail (exn name argument result)

let run ?(on_unwanted = ignore) name argument operation finish =
  match Dispatcher.current () with
  | exception exn -> Lwt.fail exn
  | dispatcher ->
      let promise, resolver = Lwt.task () in
      let request =
        Dispatcher.start dispatcher operation (fun result ->
            if not (Lwt.is_sleeping promise) then begin
              if result >= 0 then on_unwanted result
            end
            else if result >= 0 then Lwt.wakeup_later resolver (finish result)
            else Lwt.wakeup_later_exn resolver (exn name argument result))
      in
      Lwt.on_cancel promise (fun () -> Dispatcher.cancel dispatcher request);
      promise
