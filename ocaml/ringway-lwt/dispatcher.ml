open Ringway

type state =
  | Idle (* new, or its callback has been called *)
  | Backlog
  | Pushed
  | Withdrawn (* cancelled in the backlog, or refused when its turn came *)
  | Orphaned (* its queue was closed; the callback is called after a pause *)

type request = {
  operation : Operation.t;
  callback : int -> unit;
  (* The table may keep it while it is [Idle]. *)
  is_poll : bool;
  (* Of the queue, while the request is [Pushed]. *)
  mutable op : Queue.op;
  mutable state : state;
  (* The result of one that is [Withdrawn]. *)
  mutable early : int;
  (* Why it was [refused]. *)
  mutable refusal : exn;
}

type attachment = { event : Lwt_engine.event; hook : Lwt_main.Enter_iter_hooks.hook }

type t = {
  queue : Queue.t;
  fork_generation : int;
  (* The one that has used the queue last. *)
  mutable thread : int;
  (* The one that is waiting in the queue without the runtime lock; 0: none. *)
  mutable inside : int;
  mutable closed : bool;
  (* Room for one: a slot is free again as soon as its completion has been taken, so completions are
     taken one by one. *)
  completion : Queue.Completions.t;
  (* The completion that was delivered last. *)
  mutable last : Queue.op;
  (* By slot; where there is none, [no_request] or one that is [Idle]. Slots are used in order, so
     it is as long as the most operations that were in flight, at least. *)
  mutable requests : request array;
  (* Requests that found the queue full, in order. Always the same object: a thread may be about to
     add to it. *)
  backlog : request Stdlib.Queue.t;
  (* The number of [Withdrawn] ones. *)
  mutable withdrawn : int;
  (* Requests that were cancelled while another thread was [inside]. *)
  mutable cancelled : request list;
  (* Something was pushed or cancelled since the last submit. *)
  mutable unsubmitted : bool;
  (* Completions may be left that the descriptor does not announce. *)
  mutable more : bool;
  (* The hook of this iteration has run, and perhaps the engine has not yet. *)
  mutable hook_has_run : bool;
  (* Callbacks called. *)
  mutable delivered : int;
  (* Bytes that may still be transferred at once in this iteration. *)
  mutable budget : int;
  mutable driving : bool;
  mutable attached : attachment option;
}

let make ~is_poll operation callback =
  {
    operation;
    callback;
    is_poll;
    op = Queue.no_op;
    state = Idle;
    early = -Operation.ecanceled;
    refusal = Not_found;
  }

let prepare operation callback = make ~is_poll:false operation callback
let prepare_poll operation callback = make ~is_poll:true operation callback
let no_request = prepare Operation.nop ignore
let name request = Operation.name request.operation
let is_pending request = request.state <> Idle

(* Unlike any errno, and than what Queue uses. *)
let in_parent = -20_000
let unknown = -20_001
let unfinished = -20_002
let refused = -20_003
let is_lost result = result = unknown || result = unfinished
let keeps_memory result = result = unfinished || result = in_parent

(* A quarter of a millisecond of copying. *)
let budget = 2 * 1024 * 1024

(* What a transfer costs at least: a system call takes as long as copying this many bytes. *)
let least_cost = 4096

(* Batches of completions that one iteration of the loop delivers, so that files do not keep it from
   sockets and timers. *)
let rounds = 4

external fork_generation : unit -> (int[@untagged])
  = "ringway_lwt_fork_generation_byte" "ringway_lwt_fork_generation"
  [@@noalloc]

external this_thread : unit -> (int[@untagged])
  = "ringway_lwt_this_thread_byte" "ringway_lwt_this_thread"
  [@@noalloc]

let create queue =
  {
    queue;
    fork_generation = fork_generation ();
    thread = this_thread ();
    inside = 0;
    closed = false;
    completion = Queue.Completions.create 1;
    last = Queue.no_op;
    requests = [||];
    backlog = Stdlib.Queue.create ();
    withdrawn = 0;
    cancelled = [];
    unsubmitted = false;
    more = false;
    hook_has_run = false;
    delivered = 0;
    budget;
    driving = false;
    attached = None;
  }

let queue t = t.queue

let has_only_polls t =
  let is_no_file request = request.is_poll || not (is_pending request) in
  Array.for_all is_no_file t.requests
  && Stdlib.Queue.fold (fun all request -> all && is_no_file request) true t.backlog

let is_forked t = t.fork_generation <> fork_generation ()

let in_flight t =
  (if t.closed then 0 else Queue.in_flight t.queue) + Stdlib.Queue.length t.backlog

(* A forked child has none but its own thread. *)
let is_busy t = t.inside <> 0 && t.inside <> this_thread () && not (is_forked t)
let is_alive t = (not t.closed) && not (is_forked t)

let is_usable t =
  is_alive t
  && (not (is_busy t))
  && (t.thread = this_thread ()
     || begin
          Queue.adopt t.queue;
          t.thread <- this_thread ();
          true
        end)

(* Interrupts the wait of another thread: every engine watches for notifications. *)
let notification = Lwt_unix.make_notification ignore
let wake () = Lwt_unix.send_notification notification

let spend t bytes =
  let cost = if bytes < least_cost then least_cost else bytes in
  t.budget >= cost
  && begin
       t.budget <- t.budget - cost;
       true
     end

(* ---- The current dispatcher --------------------------------------------------------------- *)

type current = { dispatcher : t; renew : unit -> unit }

let current_dispatcher : current option ref = ref None

let is_current t =
  match !current_dispatcher with None -> false | Some current -> current.dispatcher == t

(* Why queues have failed, the latest first. *)
let failures : string list ref = ref []

(* After a failure: the backends to try. *)
let backends : Queue.backend list ref = ref []

let detach t =
  match t.attached with
  | None -> ()
  | Some { event; hook } ->
      t.attached <- None;
      Lwt_engine.stop_event event;
      Lwt_main.Enter_iter_hooks.remove hook

(* Closes a dispatcher that was replaced and has ended its operations. *)
let close_if_done t =
  if (not t.closed) && (not t.driving) && (not (is_current t)) && in_flight t = 0 then begin
    detach t;
    t.closed <- true;
    Queue.close t.queue
  end

let set_current ?(renew = ignore) t =
  let previous = !current_dispatcher in
  current_dispatcher := Option.map (fun dispatcher -> { dispatcher; renew }) t;
  match previous with
  | Some { dispatcher = { attached = Some _; _ } as dispatcher; _ } when is_usable dispatcher ->
      close_if_done dispatcher
  | _ -> ()

(* ---- Callbacks ------------------------------------------------------------------------------ *)

let guard callback argument =
  try callback argument with
  | (Out_of_memory | Stack_overflow | Sys.Break) as exn -> raise exn
  | exn -> !Lwt.async_exception_hook exn

(* Of the request whose callback is running, if it was [refused]. *)
let current_refusal = ref None

let refusal () =
  match !current_refusal with
  | Some exn -> exn
  | None -> invalid_arg "Ringway_lwt.Dispatcher.refusal"

let call t request result =
  request.state <- Idle;
  t.delivered <- t.delivered + 1;
  if result <> refused then guard request.callback result
  else begin
    (* A callback may run the loop, and so other callbacks. *)
    let outer = !current_refusal in
    current_refusal := Some request.refusal;
    Fun.protect
      ~finally:(fun () -> current_refusal := outer)
      (fun () -> guard request.callback result)
  end

(* Calls the callbacks of requests that end without a completion, if they are in this [state] still.
   If one raises, the others are called nevertheless: only this queue knows of them. *)
let rec call_all t state ended =
  match Stdlib.Queue.take_opt ended with
  | None -> ()
  | Some (request, result) -> (
      match if request.state = state then call t request result with
      | () -> call_all t state ended
      | exception exn ->
          call_all t state ended;
          raise exn)

(* Has a signal handler raised between the taking of a completion and its delivery? *)
let is_taken t =
  Queue.Completions.length t.completion > 0 && Queue.Completions.op t.completion 0 <> t.last

(* What has become of the operations of a queue, by op, after it was closed. A completion that was
   taken and not delivered is not in the report. *)
let close_queue t =
  let results = Hashtbl.create 64 in
  if is_taken t then
    Hashtbl.replace results
      (Queue.Completions.op t.completion 0)
      (Queue.Completions.result t.completion 0);
  List.iter
    (fun (op, result) -> Hashtbl.replace results op (Option.value result ~default:unfinished))
    (Queue.close_reporting t.queue);
  results

(* Closes the queue and tells each request, after a pause, what has become of it. [failed]: a ring
   that is closed because it has failed cancels what has perhaps taken effect. *)
let close_with t ~failed =
  if not t.closed then begin
    let orphans = ref [] in
    let orphan request =
      match request.state with
      | Backlog | Pushed | Withdrawn -> orphans := (request, request.state) :: !orphans
      | Idle | Orphaned -> ()
    in
    let forked = is_forked t in
    detach t;
    t.closed <- true;
    if is_current t then current_dispatcher := None;
    Array.iter orphan t.requests;
    Stdlib.Queue.iter orphan t.backlog;
    Stdlib.Queue.clear t.backlog;
    List.iter (fun (request, _) -> request.state <- Orphaned) !orphans;
    let results = close_queue t in
    let result (request, state) =
      let cancelled = if failed then unknown else -Operation.ecanceled in
      if forked then in_parent
      else if state = Withdrawn then request.early
      else if state <> Pushed then cancelled
      else
        match Hashtbl.find_opt results request.op with
        | Some result when result <> -Operation.ecanceled -> result
        | Some _ | None -> cancelled
    in
    let ended = Stdlib.Queue.create () in
    List.iter
      (fun orphan -> Stdlib.Queue.add (fst orphan, result orphan) ended)
      (List.rev !orphans);
    if not (Stdlib.Queue.is_empty ended) then
      Lwt.on_success (Lwt.pause ()) (fun () -> call_all t Orphaned ended)
  end

(* Requests that another thread has added while the queue was being closed. *)
let end_backlog t =
  let ended = Stdlib.Queue.create () in
  let rec collect () =
    match Stdlib.Queue.peek_opt t.backlog with
    | None -> ()
    | Some request ->
        Stdlib.Queue.add (request, unknown) ended;
        request.state <- Orphaned;
        ignore (Stdlib.Queue.pop t.backlog);
        collect ()
  in
  collect ();
  Lwt.on_success (Lwt.pause ()) (fun () -> call_all t Orphaned ended)

let abandon t = close_with t ~failed:false

let fail t exn =
  if not t.closed then begin
    let backend = Queue.backend t.queue in
    failures :=
      Printf.sprintf "the queue on %s has failed: %s" (Queue.backend_name backend)
        (Printexc.to_string exn)
      :: !failures;
    backends := (match backend with Uring -> [ Kaio; Threads ] | _ -> [ Threads ]);
    close_with t ~failed:true
  end

(* ---- Operations ----------------------------------------------------------------------------- *)

(* Lwt_main decides between the hooks and the engine's turn whether the engine may block. What is
   started after our hook is submitted by the next one, so the decision must be no. *)
let will_submit t =
  if not t.unsubmitted then begin
    t.unsubmitted <- true;
    if t.hook_has_run then ignore (Lwt.pause ())
  end

(* Finalisers and signal handlers run wherever OCaml allocates, and may start operations. What was
   read before an allocation is read again after it. *)

(* Makes the table longer. A finaliser may have been faster. *)
let grow t needed =
  let requests = Array.make (max needed (max 64 (2 * Array.length t.requests))) no_request in
  let shorter = t.requests in
  if Array.length requests > Array.length shorter then begin
    Array.blit shorter 0 requests 0 (Array.length shorter);
    t.requests <- requests
  end

(* Makes room for the slot of an operation that was pushed. Returns what a signal handler has raised
   meanwhile. *)
let rec make_room t slot raised =
  if slot < Array.length t.requests then raised
  else
    match grow t (slot + 1) with
    | () -> make_room t slot raised
    | exception Out_of_memory -> raise Out_of_memory
    | exception exn -> make_room t slot (Some exn)

(* Raises Queue.Full. *)
let push t request =
  (* Before the push, because a signal handler may raise here. *)
  if Queue.in_flight t.queue >= Array.length t.requests then grow t 0;
  let op = Queue.push t.queue request.operation in
  let withdrawn = request.state = Withdrawn in
  request.op <- op;
  request.state <- Pushed;
  let slot = Queue.slot op in
  let raised = make_room t slot None in
  (* A slot that is free again is used next, often by the same poll. *)
  if t.requests.(slot) != request then t.requests.(slot) <- request;
  if withdrawn then begin
    t.withdrawn <- t.withdrawn - 1;
    ignore (Queue.cancel t.queue op)
  end;
  will_submit t;
  Option.iter raise raised

let add_to_backlog t request =
  (* In this order, because a signal handler may raise in add. *)
  Stdlib.Queue.add request t.backlog;
  request.state <- Backlog;
  (* By another thread, meanwhile: nobody looks into its backlog any more. *)
  if t.closed then end_backlog t

let restart t request =
  if is_busy t then begin
    (* That thread goes on with it. *)
    add_to_backlog t request;
    wake ()
  end
  else if not (Stdlib.Queue.is_empty t.backlog) then add_to_backlog t request
  else
    try push t request with
    | Queue.Full -> add_to_backlog t request
    | Queue.Misuse _ when is_busy t ->
        (* Since [grow]. *)
        add_to_backlog t request;
        wake ()
    | Queue.Error { error = ESHUTDOWN; _ } as exn ->
        add_to_backlog t request;
        fail t exn

let start t operation callback =
  let request = prepare operation callback in
  restart t request;
  request

(* The other thread, or a finaliser, may change the list while the new one is allocated. *)
let rec cancel_later t request =
  let cancelled = t.cancelled in
  let longer = request :: cancelled in
  if t.cancelled == cancelled then t.cancelled <- longer else cancel_later t request

let withdraw t request =
  request.state <- Withdrawn;
  t.withdrawn <- t.withdrawn + 1

let cancel t request =
  match request.state with
  | Pushed when is_alive t && is_busy t ->
      cancel_later t request;
      wake ()
  | Pushed -> if is_usable t && Queue.cancel t.queue request.op then will_submit t
  | Backlog ->
      withdraw t request;
      will_submit t
  | Idle | Withdrawn | Orphaned -> ()

let rec cancel_more t =
  match t.cancelled with
  | [] -> ()
  | request :: rest ->
      t.cancelled <- rest;
      cancel t request;
      cancel_more t

let rec refill t =
  match Stdlib.Queue.peek_opt t.backlog with
  | None | Some { state = Withdrawn; _ } -> ()
  | Some { state = Idle | Pushed | Orphaned; _ } ->
      (* A signal handler has raised between push and pop. *)
      ignore (Stdlib.Queue.pop t.backlog);
      refill t
  | Some ({ state = Backlog; _ } as request) -> (
      match push t request with
      | () ->
          ignore (Stdlib.Queue.pop t.backlog);
          refill t
      | exception Queue.Full -> ()
      | exception Queue.Misuse _ when is_busy t -> ()
      | exception (Queue.Error { error = EINVAL | EOPNOTSUPP | EFBIG; _ } as exn) ->
          (* Of the operation, not of the queue. *)
          request.refusal <- exn;
          request.early <- refused;
          withdraw t request)

(* Ends the requests that were cancelled or refused in the backlog. *)
let rec deliver_withdrawn t =
  let length = Stdlib.Queue.length t.backlog and count = t.withdrawn in
  let kept = Stdlib.Queue.create () and withdrawn = Stdlib.Queue.create () in
  Stdlib.Queue.iter
    (fun request ->
      if request.state = Withdrawn then
        Stdlib.Queue.add (request, request.early) withdrawn
      else Stdlib.Queue.add request kept)
    t.backlog;
  (* A finaliser or another thread may have added one, or withdrawn one. *)
  if Stdlib.Queue.length t.backlog <> length || t.withdrawn <> count then deliver_withdrawn t
  else begin
    t.withdrawn <- 0;
    Stdlib.Queue.clear t.backlog;
    Stdlib.Queue.transfer kept t.backlog;
    call_all t Withdrawn withdrawn
  end

let rec deliver_completions t =
  (* A callback may have closed the queue, or forked and gone on in the child. *)
  if
    is_alive t
    && (not (is_busy t))
    && (is_taken t || Queue.take t.queue t.completion > 0)
  then begin
    let op = Queue.Completions.op t.completion 0 in
    let slot = Queue.slot op in
    let request = t.requests.(slot) in
    t.last <- op;
    if not request.is_poll then t.requests.(slot) <- no_request;
    call t request (Queue.Completions.result t.completion 0);
    deliver_completions t
  end

let deliver t =
  if t.withdrawn > 0 then deliver_withdrawn t;
  deliver_completions t

(* Runs a function of the queue that releases the runtime lock, unless another thread is in one. *)
let enter t f =
  if not (is_busy t) then begin
    (* A signal handler may call this while [f] releases the lock. *)
    let outer = t.inside in
    t.inside <- this_thread ();
    match f () with
    | () -> t.inside <- outer
    | exception exn ->
        t.inside <- outer;
        raise exn
  end

let submit t =
  if is_usable t then try enter t (fun () -> Queue.submit t.queue) with Queue.Error _ -> ()

let cancel_at_once t request =
  let was_pushed = request.state = Pushed in
  cancel t request;
  if was_pushed then submit t

let submit_and_wait t ~block ~timeout_ns =
  t.budget <- budget;
  match
    refill t;
    cancel_more t;
    let block = block && t.withdrawn = 0 in
    t.unsubmitted <- false;
    enter t (fun () -> Queue.wait t.queue ~min:(if block then 1 else 0) ~timeout_ns)
  with
  | () -> ()
  | exception Queue.Error { error = ENOMEM | EAGAIN | EBUSY; _ } ->
      (* Temporary: nothing is lost. Do not keep the processor busy until it has passed. *)
      t.unsubmitted <- true;
      Unix.sleepf 0.001
  | exception (Queue.Error _ as exn) ->
      fail t exn;
      raise exn
  | exception exn ->
      t.unsubmitted <- true;
      raise exn

(* ---- Driven by any engine ------------------------------------------------------------------- *)

let rec drive_rounds t left =
  let before = t.delivered in
  submit_and_wait t ~block:false ~timeout_ns:0;
  deliver t;
  if t.closed || t.delivered = before then begin
    t.more <- t.unsubmitted;
    (* Nothing ends the wait for what the kernel has not taken yet. *)
    if t.unsubmitted then ignore (Lwt.pause ())
  end
  else begin
    (* Promises were resolved: the loop must not block before it has seen that. *)
    ignore (Lwt.pause ());
    if left > 1 && not (is_forked t) then drive_rounds t (left - 1)
  end

let drive t =
  if is_alive t && is_busy t then begin
    (* The other thread is back in a moment. *)
    t.more <- true;
    ignore (Lwt.pause ())
  end
  else if not (is_usable t) then abandon t
  else begin
    (* A callback that ends the process runs the loop again, for what Lwt_main.at_exit is given. *)
    let nested = t.driving in
    t.hook_has_run <- false;
    t.more <- true;
    t.driving <- true;
    match drive_rounds t rounds with
    | () ->
        t.driving <- nested;
        close_if_done t
    | exception Queue.Error _ when t.closed ->
        (* explain tells why. *)
        t.driving <- nested
    | exception exn ->
        t.driving <- nested;
        raise exn
  end

let before_iteration t () =
  t.budget <- budget;
  if t.unsubmitted || t.more || not (is_usable t) then drive t;
  t.hook_has_run <- true

let attach t =
  if t.attached = None && not t.closed then begin
    let descriptor = Queue.descriptor t.queue in
    let event = Lwt_engine.on_readable descriptor (fun _ -> drive t) in
    let hook = Lwt_main.Enter_iter_hooks.add_last (before_iteration t) in
    t.attached <- Some { event; hook };
    t.more <- true
  end

let attach_or_abandon t =
  try attach t
  with exn ->
    abandon t;
    raise exn

let rec attach_later t =
  Lwt.on_success (Lwt.pause ()) (fun () ->
      if is_alive t && is_busy t then begin
        (* The other thread is back in a moment. *)
        wake ();
        attach_later t
      end
      else begin
        if is_current t then set_current None;
        (* Another domain may run the loop now. *)
        match is_usable t with
        | true -> (
            (* Without a descriptor nobody could drive it: its operations end, and tell so. *)
            try attach_or_abandon t with Queue.Error _ -> ())
        | false | (exception Queue.Error _) -> abandon t
      end)

let rec create_queue () =
  match !backends with
  | [] -> Queue.create ()
  | [ backend ] -> Queue.create ~backend ()
  | backend :: rest -> (
      try Queue.create ~backend ()
      with Queue.Error _ ->
        backends := rest;
        create_queue ())

let rec current () =
  match !current_dispatcher with
  | Some { dispatcher; _ } when is_alive dispatcher && (is_busy dispatcher || is_usable dispatcher)
    ->
      dispatcher
  | Some { dispatcher; renew } ->
      renew ();
      if is_current dispatcher then abandon dispatcher;
      current ()
  | None ->
      let queue = create_queue () in
      let t = create queue in
      (* It may find no descriptor. Nobody would drive a dispatcher that is not attached. *)
      attach_or_abandon t;
      set_current (Some t);
      t

let explain () =
  let description =
    match !current_dispatcher with
    | Some { dispatcher; _ } when is_usable dispatcher -> [ Queue.explain dispatcher.queue ]
    | _ -> []
  in
  String.concat "\n" (List.rev_append !failures description)
