type handle
type op = int

exception Full
exception Misuse of string
exception Error of { operation : string; error : Unix.error; message : string }

let () =
  Printexc.register_printer (function
    | Error { operation; error; message } ->
        Some
          (Printf.sprintf "Ringway.Queue.Error: %s: %s: %s" operation (Unix.error_message error)
             message)
    | Full -> Some "Ringway.Queue.Full: reap completions, then push again"
    | Misuse message -> Some ("Ringway.Queue.Misuse: " ^ message)
    | _ -> None)

type backend = Uring | Kaio | Threads | Null

external error_of_errno : int -> Unix.error = "ringway_ml_error"
external last_error : unit -> string = "ringway_ml_last_error"

let error result = error_of_errno (-result)

(* What the stubs return in place of an errno. *)
let busy = -10_000
let closed = -10_001
let no_room = -10_002
let did_not_end = -10_003

external unsafe_constant : int -> int = "ringway_ml_constant" [@@noalloc]

let full = -unsafe_constant 12
let enoent = -unsafe_constant 13
let echild = -unsafe_constant 14
let eexist = -unsafe_constant 15

let fail operation result =
  let misuse message = raise (Misuse (operation ^ ": " ^ message)) in
  let error message = raise (Error { operation; error = error result; message }) in
  if result = busy then misuse "another thread is using this queue"
  else if result = closed then misuse "the queue is closed"
  else if result = eexist && operation <> "create" then
    misuse "another thread created this queue with single_issuer"
  else if result = echild then error "this process was forked after the queue was created"
  else error (last_error ())

(* What the kernel may access until the completion. The stubs change and root this, because no
   signal handler and no collection may come between a push and that. They know the layout. *)
type roots = {
  (* By slot; grown when slots are used for the first time, so that a queue with a large capacity
     costs the garbage collector nothing. *)
  mutable buffers : Buffer.t array;
  mutable vectors : Buffer.t array array;
  no_buffer : Buffer.t;
  no_vector : Buffer.t array;
  mutable registered : Buffer.t array list;
}

type t = { handle : handle; roots : roots; mutable domain : int; capacity : int }

module Completions = struct
  type ints = (int, Bigarray.int_elt, Bigarray.c_layout) Bigarray.Array1.t

  (* The stub of take knows the layout. *)
  type t = { ops : ints; results : ints; mutable length : int }

  let create n =
    if n <= 0 then invalid_arg "Ringway.Queue.Completions.create";
    let ints () = Bigarray.Array1.create Bigarray.int Bigarray.c_layout n in
    { ops = ints (); results = ints (); length = 0 }

  let length t = t.length
  let clear t = t.length <- 0
  let op t i = Bigarray.Array1.get t.ops i
  let result t i = Bigarray.Array1.get t.results i
end

let no_op = -1
let slot op = op land 0xff_ffff

external unsafe_handle : int -> handle = "ringway_ml_handle"
external unsafe_open : handle -> roots -> int array -> string -> int = "ringway_ml_open"

external unsafe_push : handle -> Operation.t -> (int[@untagged])
  = "ringway_ml_push_byte" "ringway_ml_push"
  [@@noalloc]

external unsafe_push_chain : handle -> Operation.t array -> op array -> int
  = "ringway_ml_push_chain"

external unsafe_grow : handle -> Buffer.t array -> Buffer.t array array -> int = "ringway_ml_grow"
  [@@noalloc]

external unsafe_submit : handle -> int = "ringway_ml_submit"

external unsafe_cancel : handle -> (op[@untagged]) -> (int[@untagged])
  = "ringway_ml_cancel_byte" "ringway_ml_cancel"
  [@@noalloc]

external unsafe_cancel_all : handle -> int = "ringway_ml_cancel_all" [@@noalloc]

external unsafe_wait : handle -> (int[@untagged]) -> (int[@untagged]) -> (int[@untagged])
  = "ringway_ml_wait_byte" "ringway_ml_wait"

external unsafe_take : handle -> Completions.t -> (int[@untagged])
  = "ringway_ml_take_byte" "ringway_ml_take"
  [@@noalloc]

external unsafe_close : handle -> Completions.t -> int = "ringway_ml_close"
external unsafe_unfinished : handle -> int = "ringway_ml_unfinished" [@@noalloc]
external unsafe_retire : handle -> bool = "ringway_ml_retire"
external unsafe_descriptor : handle -> int = "ringway_ml_descriptor" [@@noalloc]
external unsafe_register_buffers : handle -> Buffer.t array -> int = "ringway_ml_register_buffers"

external unsafe_register_file : handle -> Unix.file_descr -> int = "ringway_ml_register_file"
  [@@noalloc]

external unsafe_unregister_file : handle -> Unix.file_descr -> int = "ringway_ml_unregister_file"
  [@@noalloc]

external unsafe_in_flight : handle -> int = "ringway_ml_in_flight" [@@noalloc]
external unsafe_stats : handle -> int array -> int = "ringway_ml_stats" [@@noalloc]
external unsafe_backend : handle -> int = "ringway_ml_backend" [@@noalloc]
external unsafe_explain : handle -> int -> (string, int) result = "ringway_ml_explain"
external int_of_descriptor : Unix.file_descr -> int = "%identity"

let check t operation =
  if t.domain <> Domain_id.self () then
    raise (Misuse (operation ^ ": the queue belongs to another domain"))

(* A finaliser must not wait, so it is called again until nothing is in flight. *)
let rec finalise t = if not (unsafe_retire t.handle) then Gc.finalise finalise t

let backend_number = function
  | Uring -> 1
  | Kaio -> 2
  | Threads -> 3
  | Null -> 4

let backend_name = function
  | Uring -> "uring"
  | Kaio -> "kaio"
  | Threads -> "threads"
  | Null -> "null"

let create ?backend ?(entries = 0) ?(completion_entries = 0) ?(capacity = 1024) ?(threads = 0)
    ?(sync_threads = 0) ?(single_issuer = false) ?(close_wait_ms = 5000) ?(faults = "") () =
  let backend = match backend with None -> 0 | Some backend -> backend_number backend in
  let numbers =
    [|
      backend; entries; completion_entries; capacity; threads; sync_threads;
      Bool.to_int single_issuer; close_wait_ms;
    |]
  in
  if
    Array.exists (fun n -> n < 0 || n > 0xffff_ffff) numbers
    || capacity = 0
    || capacity > 0xff_ffff
    || String.length faults > 511
  then invalid_arg "Ringway.Queue.create";
  let no_buffer = Operation.buffer Operation.nop in
  let no_vector = Operation.buffers Operation.nop in
  let roots =
    {
      buffers = [||];
      vectors = [||];
      no_buffer;
      no_vector;
      registered = [];
    }
  in
  let t = { handle = unsafe_handle capacity; roots; domain = Domain_id.self (); capacity } in
  (* Before the queue is opened, so that an exception of a signal handler does not lose it. *)
  Gc.finalise finalise t;
  let result = unsafe_open t.handle roots numbers faults in
  if result <> 0 then fail "create" result;
  t

(* [false]: there is no room for the operations in flight, and the queue is still open. *)
let close_into t completions =
  let result = unsafe_close t.handle completions in
  if result = 0 then begin
    (* The program may keep [t], but not for its buffers. *)
    Array.fill t.roots.buffers 0 (Array.length t.roots.buffers) t.roots.no_buffer;
    Array.fill t.roots.vectors 0 (Array.length t.roots.vectors) t.roots.no_vector;
    t.roots.registered <- []
  end
  else if result < 0 && result <> no_room && result <> closed && result <> echild then
    fail "close" result;
  result <> no_room

let close t =
  let completions = Completions.create 1 in
  (* Nobody takes the results: what the operations have opened is closed. *)
  completions.length <- -1;
  ignore (close_into t completions : bool)

let rec close_reporting t =
  let in_flight = unsafe_in_flight t.handle in
  let completions = Completions.create (max 1 in_flight) in
  completions.length <- in_flight;
  (* A finaliser or another thread may have pushed one meanwhile. *)
  if not (close_into t completions) then close_reporting t
  else
    let fate i =
      let result = Completions.result completions i in
      (Completions.op completions i, if result = did_not_end then None else Some result)
    in
    List.init completions.length fate

let unfinished t = unsafe_unfinished t.handle

let adopt t =
  let result = unsafe_backend t.handle in
  if result < 0 then fail "adopt" result;
  t.domain <- Domain_id.self ()

let capacity t = t.capacity

(* Makes room for the buffers of [count] more operations. *)
let grow t count =
  let { buffers; no_buffer; no_vector; _ } = t.roots in
  let needed = max 64 (max (2 * Array.length buffers) (unsafe_in_flight t.handle + count)) in
  let length = min t.capacity needed in
  let result = unsafe_grow t.handle (Array.make length no_buffer) (Array.make length no_vector) in
  if result < 0 then fail "push" result

let rec push t operation =
  check t "push";
  let op = unsafe_push t.handle operation in
  if op >= 0 then op
  else if op = full then raise Full
  else if op = no_room then begin
    grow t 1;
    push t operation
  end
  else fail "push" op

let rec push_chain t operations =
  check t "push_chain";
  let count = Array.length operations in
  if count = 0 || count > t.capacity then invalid_arg "Ringway.Queue.push_chain";
  let ops = Array.make count no_op in
  let result = unsafe_push_chain t.handle operations ops in
  if result >= 0 then ops
  else if result = full then raise Full
  else if result = no_room then begin
    grow t count;
    push_chain t operations
  end
  else fail "push_chain" result

let submit t =
  check t "submit";
  let result = unsafe_submit t.handle in
  if result < 0 then fail "submit" result

let cancel t op =
  check t "cancel";
  let result = unsafe_cancel t.handle op in
  if result < 0 && result <> enoent then fail "cancel" result;
  result = 0

let cancel_all t =
  check t "cancel_all";
  let result = unsafe_cancel_all t.handle in
  if result < 0 then fail "cancel_all" result;
  result

let wait t ~min ~timeout_ns =
  check t "wait";
  let result = unsafe_wait t.handle min timeout_ns in
  if result < 0 then fail "wait" result

let take t completions =
  check t "take";
  let count = unsafe_take t.handle completions in
  if count < 0 then fail "take" count;
  count

let reap t completions ~min ~timeout_ns =
  Completions.clear completions;
  wait t ~min ~timeout_ns;
  take t completions

let descriptor t =
  check t "descriptor";
  let result = unsafe_descriptor t.handle in
  if result < 0 then fail "descriptor" result;
  Operation.descriptor_of_result result

type stats = {
  pushed : int;
  delivered : int;
  in_flight : int;
  system_calls : int;
  retries : int;
  continued : int;
  to_threads : int;
  late : int;
}

let stats t =
  check t "stats";
  let numbers = Array.make 8 0 in
  let result = unsafe_stats t.handle numbers in
  if result < 0 then fail "stats" result;
  {
    pushed = numbers.(0);
    delivered = numbers.(1);
    in_flight = numbers.(2);
    system_calls = numbers.(3);
    retries = numbers.(4);
    continued = numbers.(5);
    to_threads = numbers.(6);
    late = numbers.(7);
  }

let backend t =
  check t "backend";
  match unsafe_backend t.handle with
  | 1 -> Uring
  | 2 -> Kaio
  | 3 -> Threads
  | 4 -> Null
  | result -> fail "backend" result

let in_flight t =
  check t "in_flight";
  unsafe_in_flight t.handle

let text t operation fd =
  check t operation;
  match unsafe_explain t.handle fd with Ok text -> text | Error result -> fail operation result

let explain t = text t "explain" (-1)

let explain_dont_cache t fd =
  match text t "explain_dont_cache" (int_of_descriptor fd) with "" -> None | text -> Some text

let register_buffers t buffers =
  check t "register_buffers";
  let buffers = Array.copy buffers in
  (* Before the registration: a root too many is harmless. *)
  t.roots.registered <- buffers :: t.roots.registered;
  let result = unsafe_register_buffers t.handle buffers in
  if result < 0 then begin
    t.roots.registered <- List.filter (fun others -> others != buffers) t.roots.registered;
    fail "register_buffers" result
  end

let register_file t fd =
  check t "register_file";
  let result = unsafe_register_file t.handle fd in
  if result < 0 then fail "register_file" result

let unregister_file t fd =
  check t "unregister_file";
  let result = unsafe_unregister_file t.handle fd in
  if result < 0 then fail "unregister_file" result

external version : unit -> string = "ringway_ml_version"

let version = version ()
