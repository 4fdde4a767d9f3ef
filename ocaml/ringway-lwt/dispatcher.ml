open Ringway

type request = {
  operation : Operation.t;
  callback : int -> unit;
  (* [Queue.no_op] in the backlog. *)
  mutable op : Queue.op;
  mutable ended : bool;
}

type attachment = { event : Lwt_engine.event; hook : Lwt_main.Enter_iter_hooks.hook }

type t = {
  queue : Queue.t;
  fork_generation : int;
  (* Room for one: a slot is free again as soon as its completion has been taken, so completions are
     taken one by one. *)
  completion : Queue.Completions.t;
  (* By slot; [no_request] where there is none. *)
  requests : request array;
  (* Requests that found the queue full. *)
  backlog : request Stdlib.Queue.t;
  (* Something was pushed or cancelled since the last submit. *)
  mutable unsubmitted : bool;
  (* Bytes that may still be transferred at once in this iteration. *)
  mutable budget : int;
  mutable attached : attachment option;
}

let no_request =
  { operation = Operation.nop; callback = ignore; op = Queue.no_op; ended = true }

let prepare operation callback = { operation; callback; op = Queue.no_op; ended = true }

(* A quarter of a millisecond of copying. *)
let budget = 2 * 1024 * 1024

external fork_generation : unit -> (int[@untagged])
  = "ringway_lwt_fork_generation_byte" "ringway_lwt_fork_generation"
  [@@noalloc]

let create queue =
  {
    queue;
    fork_generation = fork_generation ();
    completion = Queue.Completions.create 1;
    requests = Array.make (Queue.capacity queue) no_request;
    backlog = Stdlib.Queue.create ();
    unsubmitted = false;
    budget;
    attached = None;
  }

let queue t = t.queue
let in_flight t = Queue.in_flight t.queue + Stdlib.Queue.length t.backlog
let is_forked t = t.fork_generation <> fork_generation ()

let spend t bytes =
  t.budget >= bytes
  && begin
       t.budget <- t.budget - bytes;
       true
     end

let guard callback argument =
  try callback argument with
  | (Out_of_memory | Stack_overflow | Sys.Break) as exn -> raise exn
  | exn -> !Lwt.async_exception_hook exn

let call request result =
  request.ended <- true;
  guard request.callback result

let call_after_pause request result =
  Lwt.on_success (Lwt.pause ()) (fun () -> if not request.ended then call request result)

(* Raises Queue.Full. *)
let push t request =
  let op = Queue.push t.queue request.operation in
  request.op <- op;
  t.requests.(Queue.slot op) <- request;
  t.unsubmitted <- true

let restart t request =
  request.ended <- false;
  request.op <- Queue.no_op;
  if not (Stdlib.Queue.is_empty t.backlog) then Stdlib.Queue.add request t.backlog
  else try push t request with Queue.Full -> Stdlib.Queue.add request t.backlog

let start t operation callback =
  let request = prepare operation callback in
  restart t request;
  request

let cancel t request =
  if not request.ended then
    if request.op == Queue.no_op then
      (* refill skips it. *)
      call_after_pause request (-Operation.ecanceled)
    else if Queue.cancel t.queue request.op then t.unsubmitted <- true

let rec refill t =
  match Stdlib.Queue.peek_opt t.backlog with
  | None -> ()
  | Some request ->
      if request.ended then begin
        ignore (Stdlib.Queue.pop t.backlog);
        refill t
      end
      else begin
        match push t request with
        | () ->
            ignore (Stdlib.Queue.pop t.backlog);
            refill t
        | exception Queue.Full -> ()
      end

let rec deliver t =
  if Queue.take t.queue t.completion > 0 then begin
    let slot = Queue.slot (Queue.Completions.op t.completion 0) in
    let result = Queue.Completions.result t.completion 0 in
    let request = t.requests.(slot) in
    t.requests.(slot) <- no_request;
    call request result;
    deliver t
  end

let submit_and_wait t ~block ~timeout_ns =
  t.budget <- budget;
  refill t;
  t.unsubmitted <- false;
  Queue.wait t.queue ~min:(if block then 1 else 0) ~timeout_ns

let detach t =
  match t.attached with
  | None -> ()
  | Some { event; hook } ->
      t.attached <- None;
      Lwt_engine.stop_event event;
      Lwt_main.Enter_iter_hooks.remove hook

let abandon t =
  detach t;
  Queue.close t.queue;
  Array.iter
    (fun request -> if not request.ended then call_after_pause request (-Operation.ecanceled))
    t.requests;
  Stdlib.Queue.iter (fun request -> call_after_pause request (-Operation.ecanceled)) t.backlog;
  Stdlib.Queue.clear t.backlog

let domain_dispatcher : t option Domain_local.t = Domain_local.create (fun () -> None)

let is_current t =
  match Domain_local.get domain_dispatcher with None -> false | Some current -> current == t

(* Closes a dispatcher that was replaced and has ended its operations. *)
let close_if_done t =
  if (not (is_current t)) && in_flight t = 0 then begin
    detach t;
    Queue.close t.queue
  end

let drive t =
  if is_forked t then abandon t
  else begin
    let before = in_flight t in
    submit_and_wait t ~block:false ~timeout_ns:0;
    deliver t;
    (* Callbacks may have started operations or resolved promises: the loop must not block. *)
    if in_flight t <> before || t.unsubmitted then ignore (Lwt.pause ());
    close_if_done t
  end

let before_iteration t () =
  t.budget <- budget;
  if t.unsubmitted || not (Stdlib.Queue.is_empty t.backlog) then drive t

let attach t =
  if t.attached = None then begin
    let descriptor = Queue.descriptor t.queue in
    let event = Lwt_engine.on_readable descriptor (fun _ -> drive t) in
    let hook = Lwt_main.Enter_iter_hooks.add_last (before_iteration t) in
    t.attached <- Some { event; hook }
  end

let set_current t = Domain_local.set domain_dispatcher t

let current () =
  match Domain_local.get domain_dispatcher with
  | Some t when not (is_forked t) -> t
  | previous ->
      Option.iter abandon previous;
      let t = create (Queue.create ()) in
      set_current (Some t);
      attach t;
      t
