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

let fail operation result =
  if result = busy then raise (Misuse (operation ^ ": another thread is using this queue"))
  else if result = closed then raise (Misuse (operation ^ ": the queue is closed"))
  else raise (Error { operation; error = error result; message = last_error () })

type t = {
  handle : handle;
  domain : int;
  capacity : int;
  (* By slot: what the kernel may access until the completion. *)
  roots : Buffer.t array;
  vectors : Buffer.t array array;
}

let no_vector = [||]

module Completions = struct
  type ints = (int, Bigarray.int_elt, Bigarray.c_layout) Bigarray.Array1.t
  type t = { ops : ints; results : ints }

  let create n =
    if n <= 0 then invalid_arg "Ringway.Queue.Completions.create";
    let ints () = Bigarray.Array1.create Bigarray.int Bigarray.c_layout n in
    { ops = ints (); results = ints () }

  let op t i = Bigarray.Array1.get t.ops i
  let result t i = Bigarray.Array1.get t.results i
end

let no_op = -1
let slot op = op land 0xff_ffff

external unsafe_create : int array -> string -> (handle, int) result = "ringway_ml_create"
external unsafe_push : handle -> Operation.t -> (int[@untagged])
  = "ringway_ml_push_byte" "ringway_ml_push"
  [@@noalloc]

external unsafe_push_chain : handle -> Operation.t array -> op array -> int
  = "ringway_ml_push_chain"

external unsafe_submit : handle -> int = "ringway_ml_submit"
external unsafe_cancel : handle -> (op[@untagged]) -> (int[@untagged])
  = "ringway_ml_cancel_byte" "ringway_ml_cancel"
  [@@noalloc]

external unsafe_cancel_all : handle -> int = "ringway_ml_cancel_all"
external unsafe_wait : handle -> (int[@untagged]) -> (int[@untagged]) -> (int[@untagged])
  = "ringway_ml_wait_byte" "ringway_ml_wait"

external unsafe_take :
  handle ->
  Buffer.t array ->
  Buffer.t array array ->
  Buffer.t ->
  Completions.ints ->
  Completions.ints ->
  int = "ringway_ml_take_byte" "ringway_ml_take"
  [@@noalloc]

external unsafe_close : handle -> int = "ringway_ml_close"
external unsafe_descriptor : handle -> int = "ringway_ml_descriptor"
external unsafe_in_flight : handle -> int = "ringway_ml_in_flight"
external unsafe_stats : handle -> int array = "ringway_ml_stats"
external unsafe_backend : handle -> int = "ringway_ml_backend"
external unsafe_explain : handle -> string = "ringway_ml_explain"

let full = -11 (* EAGAIN, the same on all Linux systems that ringway supports *)
let enoent = -2

let check t operation =
  if t.domain <> Domain_id.self () then
    raise (Misuse (operation ^ ": the queue belongs to another domain"))

(* Operations that did not end: the kernel accesses their buffers for the life of the process. *)
let leaked : t list ref = ref []

let leak t = leaked := t :: !leaked

(* A finaliser must not block, so it closes a queue only when nothing is in flight. *)
let rec finalise t =
  match
    if unsafe_in_flight t.handle > 0 then begin
      ignore (unsafe_cancel_all t.handle);
      ignore (unsafe_wait t.handle 0 0)
    end;
    if unsafe_in_flight t.handle > 0 then `In_flight else `Close
  with
  | `In_flight -> Gc.finalise finalise t
  | `Close -> if unsafe_close t.handle <> 0 then leak t

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
  if Array.exists (fun n -> n < 0 || n > 0xffff_ffff) numbers || capacity = 0 then
    invalid_arg "Ringway.Queue.create";
  let handle =
    match unsafe_create numbers faults with
    | Ok handle -> handle
    | Error result -> fail "create" result
  in
  let t =
    {
      handle;
      domain = Domain_id.self ();
      capacity;
      roots = Array.make capacity Buffer.empty;
      vectors = Array.make capacity no_vector;
    }
  in
  Gc.finalise finalise t;
  t

let close t =
  match unsafe_close t.handle with
  | 0 -> ()
  | left when left > 0 -> leak t
  | result when result = closed -> ()
  | result -> fail "close" result

let capacity t = t.capacity

let root t op operation =
  let buffer = Operation.buffer operation in
  if buffer != Buffer.empty then t.roots.(slot op) <- buffer;
  let buffers = Operation.buffers operation in
  if Array.length buffers > 0 then t.vectors.(slot op) <- buffers

let push t operation =
  check t "push";
  let op = unsafe_push t.handle operation in
  if op < 0 then if op = full then raise Full else fail "push" op;
  root t op operation;
  op

let push_chain t operations =
  check t "push_chain";
  let count = Array.length operations in
  if count = 0 || count > t.capacity then invalid_arg "Ringway.Queue.push_chain";
  let ops = Array.make count 0 in
  let result = unsafe_push_chain t.handle operations ops in
  if result < 0 then if result = full then raise Full else fail "push_chain" result;
  Array.iteri (fun i op -> root t op operations.(i)) ops;
  ops

let submit t =
  check t "submit";
  let result = unsafe_submit t.handle in
  if result < 0 then fail "submit" result

let cancel t op =
  check t "cancel";
  let result = unsafe_cancel t.handle op in
  if result < 0 && result <> enoent then fail "cancel" result;
  result = 0

let wait t ~min ~timeout_ns =
  check t "wait";
  let result = unsafe_wait t.handle min timeout_ns in
  if result < 0 then fail "wait" result

let take t (completions : Completions.t) =
  check t "take";
  let count =
    unsafe_take t.handle t.roots t.vectors Buffer.empty completions.ops completions.results
  in
  if count < 0 then fail "take" count;
  count

let reap t completions ~min ~timeout_ns =
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
  match unsafe_stats t.handle with
  | [| pushed; delivered; in_flight; system_calls; retries; continued; to_threads; late |] ->
      { pushed; delivered; in_flight; system_calls; retries; continued; to_threads; late }
  | _ -> fail "stats" closed

let backend t =
  match unsafe_backend t.handle with
  | 1 -> Uring
  | 2 -> Kaio
  | 3 -> Threads
  | 4 -> Null
  | _ -> fail "backend" closed

let in_flight t = unsafe_in_flight t.handle
let explain t = unsafe_explain t.handle

external version : unit -> string = "ringway_ml_version"

let library_version = version ()
