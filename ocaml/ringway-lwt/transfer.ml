type running = { dispatcher : Dispatcher.t; request : Dispatcher.request }

type t = {
  mutable running : running option;
  mutable waiter : unit Lwt.u option;
}

let create () = { running = None; waiter = None }
let is_running t = t.running <> None

let take_waiter t =
  let waiter = t.waiter in
  t.waiter <- None;
  waiter

let start t operation finish =
  assert (t.running = None);
  let dispatcher = Dispatcher.current () in
  let request =
    Dispatcher.start dispatcher operation (fun result ->
        t.running <- None;
        finish result;
        match take_waiter t with
        | None -> ()
        | Some waiter -> Lwt.wakeup_later waiter ())
  in
  t.running <- Some { dispatcher; request }

let wait_with t on_cancel =
  match t.running with
  | None -> Lwt.return_unit
  | Some running ->
      let promise, resolver = Lwt.task () in
      t.waiter <- Some resolver;
      Lwt.on_cancel promise (fun () ->
          t.waiter <- None;
          on_cancel running);
      promise

let wait t = wait_with t ignore

let wait_or_cancel t =
  wait_with t (fun { dispatcher; request } -> Dispatcher.cancel dispatcher request)

let stop t exn =
  match t.running with
  | None -> Lwt.return_unit
  | Some { dispatcher; request } ->
      let waiter = take_waiter t in
      let ended, resolver = Lwt.wait () in
      t.waiter <- Some resolver;
      Dispatcher.cancel dispatcher request;
      Option.iter (fun waiter -> Lwt.wakeup_later_exn waiter exn) waiter;
      ended

let locked mutex f =
  if Lwt_mutex.is_locked mutex then Lwt_mutex.with_lock mutex f
  else begin
    (* Does not wait. *)
    ignore (Lwt_mutex.lock mutex : unit Lwt.t);
    let promise = try f () with exn -> Lwt.fail exn in
    if Lwt.is_sleeping promise then
      Lwt.on_termination promise (fun () -> Lwt_mutex.unlock mutex)
    else Lwt_mutex.unlock mutex;
    promise
  end
