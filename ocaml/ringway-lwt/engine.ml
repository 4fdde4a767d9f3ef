open Ringway

(* A callback of on_readable or on_writable. *)
type watcher = {
  callback : unit -> unit;
  mutable active : bool;
  (* After a transfer: the event of the other engine. *)
  mutable successor : Lwt_engine.event;
}

(* The poll operation of a descriptor and a direction. It is used again for each arming. *)
type poll = {
  mutable request : Dispatcher.request;
  (* In the order of registration. Empty: nobody is interested, and if the operation is in flight
     nevertheless, it was cancelled and the poll is in no table. *)
  mutable watchers : watcher list;
  mutable armed : bool;
  (* It is in [dirty]. *)
  mutable listed : bool;
}

type t = {
  mutable dispatcher : Dispatcher.t;
  (* By 2 * descriptor + direction. *)
  mutable polls : poll array;
  (* Polls to arm before the next wait: dirty.(0) to dirty.(dirty_count - 1). *)
  mutable dirty : poll array;
  mutable dirty_count : int;
  timers : Timers.t;
  (* Many events are being stopped: one submission at the end releases all files. *)
  mutable stopping : bool;
  (* Another engine has all events. *)
  mutable transferred : bool;
  (* The ring has failed. *)
  mutable failed : bool;
  mutable iterations : int;
  mutable arms : int;
  mutable cancelled : int;
  mutable rings : int;
}

let no_poll =
  { request = Dispatcher.no_request; watchers = []; armed = false; listed = false }

(* Slots are allocated when they are used for the first time. *)
let capacity = 262_144

let create_dispatcher () =
  (* Without [single_issuer]: only the thread that created such a ring can end its operations, and
     Lwt's loop may go on in another one. *)
  Dispatcher.create (Queue.create ~backend:Queue.Uring ~entries:256 ~capacity ())

let create () =
  {
    dispatcher = create_dispatcher ();
    polls = [||];
    dirty = [||];
    dirty_count = 0;
    timers = Timers.create ();
    stopping = false;
    transferred = false;
    failed = false;
    iterations = 0;
    arms = 0;
    cancelled = 0;
    rings = 1;
  }

(* ---- Polls -------------------------------------------------------------------------------- *)

(* Finalisers run wherever OCaml allocates, and may register and stop events. What was read before
   an allocation is read again after it. *)

(* A longer copy of an array, or [current ()] if a finaliser has made that as long. *)
let longer current least =
  let length = Array.length (current ()) in
  let copy = Array.make (max least (2 * length)) no_poll in
  let array = current () in
  if Array.length array >= Array.length copy then array
  else begin
    Array.blit array 0 copy 0 (Array.length array);
    copy
  end

let rec mark_dirty t poll =
  if poll.listed then ()
  else if t.dirty_count = Array.length t.dirty then begin
    t.dirty <- longer (fun () -> t.dirty) 16;
    mark_dirty t poll
  end
  else begin
    t.dirty.(t.dirty_count) <- poll;
    t.dirty_count <- t.dirty_count + 1;
    poll.listed <- true
  end

let is_watched poll = match poll.watchers with [] -> false | _ :: _ -> true

let arm t poll =
  match Dispatcher.restart t.dispatcher poll.request with
  | () ->
      poll.armed <- true;
      t.arms <- t.arms + 1;
      (* A finaliser may have stopped its last event. *)
      if not (is_watched poll) then Dispatcher.cancel t.dispatcher poll.request
  | exception exn ->
      if Dispatcher.is_pending poll.request then poll.armed <- true else mark_dirty t poll;
      raise exn

let rec arm_dirty t =
  if t.dirty_count > 0 then begin
    t.dirty_count <- t.dirty_count - 1;
    let poll = t.dirty.(t.dirty_count) in
    poll.listed <- false;
    if is_watched poll && not poll.armed then arm t poll;
    arm_dirty t
  end

(* Watchers that an earlier callback has stopped are not called; those that it has added are not in
   the list. The dispatcher guards the last one. *)
let rec call_watchers = function
  | [] -> ()
  | [ watcher ] -> if watcher.active then watcher.callback ()
  | watcher :: rest ->
      if watcher.active then Dispatcher.guard watcher.callback ();
      call_watchers rest

let ebadf = -9 (* the same on all Linux systems *)

let fired t poll result =
  (* Otherwise it was armed on a ring that was replaced. *)
  if poll.armed then begin
    poll.armed <- false;
    match poll.watchers with
    | [] -> ()
    | watchers ->
        (* A callback finds out about an error from its own system call. A descriptor that is not
           open would be ready in every iteration until its callbacks are stopped. *)
        if result = ebadf then poll.watchers <- [] else mark_dirty t poll;
        (* A poll that was cancelled, by [register], says nothing about the descriptor. *)
        if result <> -Operation.ecanceled then call_watchers watchers
  end

external int_of_descriptor : Unix.file_descr -> int = "%identity"

let readable = 0
let writable = 1

let new_poll t key =
  let poll = { no_poll with watchers = [] } in
  let fd = Operation.descriptor_of_result (key / 2) in
  let events = if key land 1 = readable then Operation.pollin else Operation.pollout in
  poll.request <- Dispatcher.prepare_poll (Operation.poll fd events) (fired t poll);
  if t.polls.(key) == no_poll then t.polls.(key) <- poll;
  t.polls.(key)

(* Replaces the watchers of a poll. *)
let rec change_watchers poll change =
  let watchers = poll.watchers in
  let changed = change watchers in
  if poll.watchers == watchers then poll.watchers <- changed else change_watchers poll change

let deactivate t key poll watcher =
  if watcher.active then begin
    watcher.active <- false;
    change_watchers poll (function
      | [ only ] when only == watcher -> []
      | watchers -> List.filter (fun other -> other != watcher) watchers);
    if (not (is_watched poll)) && poll.armed then begin
      (* The descriptor may soon be another file, which gets a poll of its own. *)
      if t.polls.(key) == poll then t.polls.(key) <- no_poll;
      t.cancelled <- t.cancelled + 1;
      Dispatcher.cancel t.dispatcher poll.request;
      if not t.stopping then Dispatcher.submit t.dispatcher
    end
  end

let stop t key poll watcher =
  deactivate t key poll watcher;
  Lwt_engine.stop_event watcher.successor

let register t fd direction callback =
  let key = (2 * int_of_descriptor fd) + direction in
  if key < 0 then raise (Unix.Unix_error (Unix.EBADF, "poll", ""));
  while key >= Array.length t.polls do
    t.polls <- longer (fun () -> t.polls) (max 64 (key + 1))
  done;
  let watcher = { callback; active = true; successor = Lwt_engine.fake_event } in
  let poll = if t.polls.(key) == no_poll then new_poll t key else t.polls.(key) in
  change_watchers poll (function [] -> [ watcher ] | watchers -> watchers @ [ watcher ]);
  if not poll.armed then mark_dirty t poll
  else
    (* The program may have closed the file without stopping the event, and the descriptor may be
       another file now: the poll is armed again. *)
    Dispatcher.cancel t.dispatcher poll.request;
  lazy (stop t key poll watcher)

(* ---- Timers ------------------------------------------------------------------------------- *)

(* About 30 years. *)
let longest_delay = 1e9

let nanoseconds delay = int_of_float (Float.max delay (-.longest_delay) *. 1e9)

let register_timer t delay repeat callback =
  (* Comparing with nan is false. A negative delay goes before one of 0, as in libev. *)
  let time =
    if delay < longest_delay then Clock.now_ns () + nanoseconds delay else Timers.never
  in
  let period =
    if repeat then max 0 (nanoseconds (Float.min delay longest_delay)) else -1
  in
  let timer = Timers.add t.timers ~time ~period ~delay callback in
  lazy (Timers.remove t.timers timer)

let call_timer callback = Dispatcher.guard callback ()

(* ---- Transfer to another engine -------------------------------------------------------------- *)

(* Lwt_engine.abstract forgets at its second transfer which event the program holds, so that the
   program can no longer stop it. Here each event leads to its successor. *)
let transfer t (engine : Lwt_engine.abstract) =
  t.stopping <- true;
  Array.iteri
    (fun key poll ->
      let fd = Operation.descriptor_of_result (key / 2) in
      List.iter
        (fun watcher ->
          deactivate t key poll watcher;
          let callback _ = watcher.callback () in
          watcher.successor <-
            (if key land 1 = readable then engine#on_readable fd callback
             else engine#on_writable fd callback))
        poll.watchers)
    (Array.copy t.polls);
  Timers.move t.timers (fun delay repeat callback ->
      engine#on_timer delay repeat (fun _ -> callback ()));
  t.stopping <- false;
  t.transferred <- true;
  Dispatcher.submit t.dispatcher

(* ---- Replacing the ring, and the engine --------------------------------------------------- *)

let last_failure = ref "not installed"

let describe = function
  | Queue.Error { message; _ } -> message
  | exn -> Printexc.to_string exn

let default_engine () =
  if Lwt_sys.have `libev then
    try (new Lwt_engine.libev () :> Lwt_engine.t)
    with Failure _ -> (new Lwt_engine.select :> Lwt_engine.t)
  else (new Lwt_engine.select :> Lwt_engine.t)

(* Lwt's engine takes over events and timers; [cleanup] ends the dispatcher. *)
let give_up t exn =
  t.failed <- true;
  last_failure := "the engine was removed: " ^ describe exn;
  Lwt_engine.set (default_engine ())

(* In another process. The polls in flight are the parent's. *)
let rec renew t =
  match create_dispatcher () with
  | exception exn -> give_up t exn
  | dispatcher ->
      let previous = t.dispatcher in
      t.dispatcher <- dispatcher;
      t.rings <- t.rings + 1;
      Array.iter
        (fun poll ->
          if poll.armed then begin
            poll.armed <- false;
            mark_dirty t poll
          end)
        t.polls;
      Dispatcher.abandon previous;
      make_current t

and make_current t =
  Dispatcher.set_current (Some t.dispatcher) ~renew:(fun () -> if not t.failed then renew t)

(* File operations in flight go on under the next engine. It is not in place yet, and what a
   callback registered here would be lost with this one: none is called. The dispatcher stays the
   current one for the same reason; a new one would be attached to this engine. *)
let cleanup t =
  let dispatcher = t.dispatcher in
  let goes_on =
    Dispatcher.is_busy dispatcher
    || (Dispatcher.is_usable dispatcher && not (Dispatcher.has_only_polls dispatcher))
  in
  if t.failed || not goes_on then Dispatcher.abandon dispatcher
  else begin
    Dispatcher.set_current (Some dispatcher);
    Dispatcher.submit t.dispatcher;
    Dispatcher.attach_later dispatcher
  end

(* ---- An iteration -------------------------------------------------------------------------- *)

(* Until a signal or the timeout. *)
let sleep timeout_ns =
  let timeout = if timeout_ns < 0 then -1. else float_of_int (timeout_ns + 1_000) *. 1e-9 in
  try ignore (Unix.select [] [] [] timeout) with Unix.Unix_error (Unix.EINTR, _, _) -> ()

let wait t block =
  arm_dirty t;
  let timeout_ns =
    if (not block) || Timers.pending t.timers then 0
    else
      let next = Timers.next t.timers in
      if next = Timers.never then -1 else max 0 (next - Clock.now_ns ())
  in
  if timeout_ns = 0 then Dispatcher.submit_and_wait t.dispatcher ~block:false ~timeout_ns
  else if Dispatcher.in_flight t.dispatcher = 0 then sleep timeout_ns
  else Dispatcher.submit_and_wait t.dispatcher ~block:true ~timeout_ns

let turn t block =
  let usable = Dispatcher.is_usable t.dispatcher in
  if not usable then renew t;
  (* The operations of the old ring end after a pause, of which Lwt_main does not know yet. *)
  let block = block && usable in
  if not t.failed then begin
    match wait t block with
    | exception (Queue.Error _ as exn) -> give_up t exn
    | () ->
        if Timers.pending t.timers || Timers.next t.timers < Timers.never then
          Timers.run t.timers ~now:(Clock.now_ns ()) call_timer;
        Dispatcher.deliver t.dispatcher
  end

(* A program may end, and flush its channels, while the loop waits in another thread. That thread
   goes on with the operations; it learns of new events and timers when it is woken. *)
let let_another_thread_turn () =
  Dispatcher.wake ();
  Unix.sleepf 0.001

let iter t block =
  t.iterations <- t.iterations + 1;
  if Dispatcher.is_busy t.dispatcher then let_another_thread_turn () else turn t block

class engine t =
  object
    inherit Engine_base.base as super
    method iter block = iter t block
    method private cleanup = cleanup t
    method private register_readable fd callback = register t fd readable callback
    method private register_writable fd callback = register t fd writable callback
    method private register_timer delay repeat callback = register_timer t delay repeat callback

    method! transfer engine = transfer t engine

    (* Stopping events that were transferred would stop their successors. *)
    method! destroy =
      t.stopping <- true;
      if t.transferred then cleanup t else super#destroy
  end

(* ---- The engine of the process -------------------------------------------------------------- *)

let current : (Lwt_engine.t * t) option ref = ref None

let running () =
  match !current with
  | Some (engine, t) when Lwt_engine.get () == engine -> Some t
  | _ -> None

let installed () = Option.is_some (running ())

(* The environment is the operator's choice for all queues of the program, also for this one. *)
let other_backend () =
  let needs_uring name =
    Printf.sprintf
      "RINGWAY_BACKEND is %s, and the engine needs io_uring; fix: unset it, or set it to uring" name
  in
  match Sys.getenv_opt "RINGWAY_BACKEND" with
  | None | Some ("" | "uring") -> None
  | Some (("kaio" | "threads") as name) -> Some (needs_uring name)
  | Some name -> (
      (* The error of a queue says that it is no backend. *)
      match Queue.create () with
      | exception (Queue.Error _ as exn) -> Some (describe exn)
      | queue ->
          Queue.close queue;
          Some (needs_uring name))

let refuse reason =
  last_failure := reason;
  Error reason

(* libev may be on the stack, and goes on with its loop when the callback returns. *)
let destroy_later (engine : Lwt_engine.t) =
  let hook = ref None in
  let destroy () =
    Option.iter Lwt_main.Enter_iter_hooks.remove !hook;
    engine#destroy
  in
  hook := Some (Lwt_main.Enter_iter_hooks.add_first destroy)

let install () =
  if installed () then Ok ()
  else
    match other_backend () with
    | Some reason -> refuse reason
    | None -> (
        match create () with
        | exception ((Queue.Error _ | Invalid_argument _) as exn) -> refuse (describe exn)
        | t ->
            let engine = (new engine t :> Lwt_engine.t) in
            let previous = Lwt_engine.get () in
            current := Some (engine, t);
            Lwt_engine.set ~destroy:false engine;
            make_current t;
            destroy_later previous;
            Ok ())

let remove () =
  if installed () then begin
    last_failure := "the engine was removed";
    Lwt_engine.set (default_engine ())
  end

let explain () =
  match running () with
  | Some t when Dispatcher.is_usable t.dispatcher -> Queue.explain (Dispatcher.queue t.dispatcher)
  | Some t when Dispatcher.is_busy t.dispatcher -> "installed; another thread waits in the ring"
  | Some _ -> "installed; the next iteration creates a ring for this process"
  | None -> !last_failure

type stats = {
  iterations : int;
  polls : int;
  cancelled : int;
  rings : int;
  queue : Queue.stats option;
}

let stats () =
  Option.map
    (fun (t : t) ->
      {
        iterations = t.iterations;
        polls = t.arms;
        cancelled = t.cancelled;
        rings = t.rings;
        queue =
          (if Dispatcher.is_usable t.dispatcher then
           Some (Queue.stats (Dispatcher.queue t.dispatcher))
          else None);
      })
    (running ())
