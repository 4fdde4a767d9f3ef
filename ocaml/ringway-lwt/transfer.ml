type t = {
  (* [Dispatcher.no_request] if none is running. *)
  mutable request : Dispatcher.request;
  (* That of [request], or of an earlier one. *)
  mutable dispatcher : Dispatcher.t option;
  (* Called once: at the end of the operation, or with the argument of [stop]. *)
  mutable waiter : exn option -> unit;
  (* An operation did not end by the close of its queue, and the kernel may use the descriptor. *)
  mutable unfinished : bool;
}

let no_waiter : exn option -> unit = ignore

let create () =
  {
    request = Dispatcher.no_request;
    dispatcher = None;
    waiter = no_waiter;
    unfinished = false;
  }

let is_running t = t.request != Dispatcher.no_request

let wake t stopped =
  let waiter = t.waiter in
  if waiter != no_waiter then begin
    t.waiter <- no_waiter;
    waiter stopped
  end

let prepare t operation finish =
  Dispatcher.prepare operation (fun result ->
      t.request <- Dispatcher.no_request;
      if result = Dispatcher.unfinished then t.unfinished <- true;
      finish result;
      wake t None)

let restart t request =
  assert (not (is_running t));
  let dispatcher = Promise.dispatcher (Dispatcher.name request) "" in
  (match t.dispatcher with
  | Some known when known == dispatcher -> ()
  | _ -> t.dispatcher <- Some dispatcher);
  t.request <- request;
  (* A signal handler may raise after the operation has been started. *)
  try Dispatcher.restart dispatcher request
  with exn when not (Dispatcher.is_pending request) ->
    t.request <- Dispatcher.no_request;
    raise exn

let start t operation finish = restart t (prepare t operation finish)

let cancel t =
  match t.dispatcher with
  | Some dispatcher when is_running t -> Dispatcher.cancel dispatcher t.request
  | _ -> ()

let wait_with t on_cancel =
  if not (is_running t) then Lwt.return_unit
  else begin
    let promise, resolver = Lwt.task () in
    t.waiter <-
      (function
      | None -> Lwt.wakeup_later resolver ()
      | Some exn -> Lwt.wakeup_later_exn resolver exn);
    Lwt.on_cancel promise (fun () ->
        t.waiter <- no_waiter;
        on_cancel t);
    promise
  end

let wait t = wait_with t ignore
let wait_or_cancel t = wait_with t cancel

let stop t exn =
  if not (is_running t) then Lwt.return_unit
  else begin
    let waiter = t.waiter in
    let ended, resolver = Lwt.wait () in
    t.waiter <- (fun _ -> Lwt.wakeup_later resolver ());
    cancel t;
    waiter (Some exn);
    ended
  end

let close t close_descriptor =
  if t.unfinished then Lwt.fail (Unix.Unix_error (EIO, "close", "")) else close_descriptor ()

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

let wait_locked t mutex f =
  let promise, resolver = Lwt.task () in
  let rec settle result =
    match Lwt.state result with
    | Return value ->
        Lwt_mutex.unlock mutex;
        Lwt.wakeup_later resolver value
    | Fail exn ->
        Lwt_mutex.unlock mutex;
        Lwt.wakeup_later_exn resolver exn
    | Sleep ->
        Lwt.on_cancel promise (fun () -> Lwt.cancel result);
        Lwt.on_termination result (fun () -> if Lwt.is_sleeping promise then settle result)
  in
  t.waiter <-
    (function
    | None -> settle (try f () with exn -> Lwt.fail exn)
    | Some exn -> settle (Lwt.fail exn));
  Lwt.on_cancel promise (fun () ->
      t.waiter <- no_waiter;
      Lwt_mutex.unlock mutex);
  promise
