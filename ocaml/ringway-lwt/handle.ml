open Ringway

type memory = Bigarray of Buffer.t | Bytes of Bytes.t

(* Callers of fsync and fdatasync who share one system call. *)
type group = {
  (* Somebody wants fsync. *)
  mutable full : bool;
  waiters : (string * unit Lwt.u) Stdlib.Queue.t;
  (* Those that were not cancelled. *)
  mutable awaited : int;
  (* An error of the sync that was in flight before, which may have written their data back and
     taken the kernel's report about it; 0: none. *)
  mutable inherited : int;
  (* Requests that the system call be cancelled. *)
  mutable cancel : unit -> unit;
}

(* Transfers that are performed one after another. *)
type turns = {
  (* Sleeps until the last of them has ended. *)
  mutable last : unit Lwt.t;
}

module Int_map = Map.Make (Int)

type t = {
  fd : Unix.file_descr;
  (* The page cache may have its data, and can be read without waiting. *)
  page_cache : Page_cache.t option;
  (* Transfers leave no pages in the page cache. *)
  dont_cache : bool;
  (* It is open for direct I/O. *)
  direct : bool;
  seekable : bool;
  (* How often the process had forked when nobody else had the open file; -1: others may have
     it. *)
  mutable alone : int;
  mutable closed : bool;
  (* Operations that have not ended. *)
  mutable users : int;
  mutable idle : unit Lwt.u option;
  (* One of them did not end by the close of its queue, and the kernel may use the descriptor. *)
  mutable unfinished : bool;
  (* [ended t], allocated once. *)
  on_result : (int -> unit) option;
  mutable syncing : bool;
  (* Syncs that were called while another one was in flight, which may not cover what was written
     since it began. *)
  mutable next_syncs : group option;
  (* An error of a sync that nobody waited for any more; 0: none. The kernel reports it once. *)
  mutable unreported : int;
  (* Of operations at the current position: the same for both. A file without one has a turn for
     each direction, since a read may wait for ever. *)
  reads : turns;
  writes : turns;
  (* Of files that are not seekable: how to cancel each operation. *)
  mutable next_key : int;
  mutable cancels : (unit -> unit) Int_map.t;
}

external is_direct : Unix.file_descr -> bool = "ringway_lwt_is_direct" [@@noalloc]

(* That of Buffer.create_aligned: the address modulo a power of two. *)
external past_multiple : Buffer.t -> (int[@untagged]) -> (int[@untagged])
  = "ringway_ml_misalignment_byte" "ringway_ml_misalignment"
  [@@noalloc]

external has_position : Unix.file_descr -> bool = "ringway_lwt_has_position" [@@noalloc]

external forks : unit -> (int[@untagged]) = "ringway_lwt_forks_byte" "ringway_lwt_forks"
  [@@noalloc]

let wake_closer t resolver =
  if t.unfinished then
    Lwt.wakeup_later_exn resolver (Unix.Unix_error (EIO, "close", ""))
  else Lwt.wakeup_later resolver ()

let ended t result =
  if result = Dispatcher.unfinished then t.unfinished <- true;
  t.users <- t.users - 1;
  if t.users = 0 then
    match t.idle with
    | None -> ()
    | Some resolver ->
        t.idle <- None;
        wake_closer t resolver

let create ?(dont_cache = false) ?(alone = false) fd =
  let seekable = has_position fd and direct = is_direct fd in
  let cached = seekable && (not dont_cache) && not direct in
  let reads = { last = Lwt.return_unit } in
  let writes = if seekable then reads else { last = Lwt.return_unit } in
  let rec t =
    {
      fd;
      page_cache = (if cached then Descriptor.page_cache fd else None);
      dont_cache;
      direct;
      seekable;
      alone = (if alone then forks () else -1);
      closed = false;
      users = 0;
      idle = None;
      unfinished = false;
      on_result = Some (fun result -> ended t result);
      syncing = false;
      next_syncs = None;
      unreported = 0;
      reads;
      writes;
      next_key = 0;
      cancels = Int_map.empty;
    }
  in
  t

let descriptor t = t.fd
let is_closed t = t.closed
let is_seekable t = t.seekable
let is_idle t = t.users = 0
let share t = t.alone <- -1
let note_written t = Option.iter Page_cache.note_written t.page_cache

(* A finaliser may change it while the next value is allocated. *)
let rec change_cancels t change =
  let cancels = t.cancels in
  let changed = change cancels in
  if t.cancels == cancels then t.cancels <- changed else change_cancels t change

(* Lets [shut] cancel the operation of a promise. *)
let interruptible t name promise =
  let key = t.next_key in
  t.next_key <- key + 1;
  change_cancels t (Int_map.add key (fun () -> Lwt.cancel promise));
  Lwt.try_bind
    (fun () -> promise)
    (fun value ->
      change_cancels t (Int_map.remove key);
      Lwt.return value)
    (fun exn ->
      change_cancels t (Int_map.remove key);
      match exn with
      | Lwt.Canceled when t.closed -> Lwt.fail (Unix.Unix_error (EBADF, name, ""))
      | exn -> Lwt.fail exn)

(* What is written to a stream after the cancel is for another read. (The option is made here, since
   [run] must not allocate.) *)
let at_once = Some Dispatcher.cancel_at_once
let cancel t = if t.seekable then None else at_once

let run t ?on_end name operation finish =
  (* Nothing is allocated before the call, so no signal handler can raise before it. *)
  t.users <- t.users + 1;
  let promise =
    Promise.run ?cancel:(cancel t) ?on_end ?on_result:t.on_result name "" operation finish
  in
  if t.seekable then promise else interruptible t name promise

let in_turn t turns go =
  let turn, next = Lwt.wait () in
  let on_result result =
    if Lwt.is_sleeping turn then begin
      Lwt.wakeup_later next ();
      ended t result
    end
  in
  let generation = Dispatcher.fork_generation () in
  let end_with result =
    on_result result;
    Lwt.fail Lwt.Canceled
  in
  let go () =
    (* What waited for its turn when the process forked is the parent's, as if it were in flight. *)
    if generation <> Dispatcher.fork_generation () then end_with Dispatcher.in_parent
      (* Its turn came while it could no longer be cancelled. *)
    else if t.closed && not t.seekable then end_with 0
    else
      (* A signal handler may raise before the operation is started. *)
      try go ~on_result
      with exn ->
        on_result 0;
        raise exn
  in
  (* Nothing is allocated from here on, so no finaliser takes the same turn. *)
  let previous = turns.last in
  turns.last <- turn;
  t.users <- t.users + 1;
  if not (Lwt.is_sleeping previous) then go ()
  else
    try
      let gate, opener = Lwt.task () in
      let result = Lwt.bind gate go in
      (* A cancelled one still waits for its turn, so that the next does not come too early. *)
      Lwt.on_success previous (fun () ->
          if Lwt.is_sleeping gate then Lwt.wakeup_later opener () else on_result 0);
      result
    with exn ->
      Lwt.on_success previous (fun () -> on_result 0);
      raise exn

(* An operation at [pos]. *)
let run_at t turns ?on_end ~pos name operation finish =
  if pos <> Operation.current_position then run t ?on_end name operation finish
  else
    let promise =
      in_turn t turns (fun ~on_result ->
          Promise.run ?cancel:(cancel t) ?on_end ~on_result name "" operation finish)
    in
    if t.seekable then promise else interruptible t name promise

(* Nobody reads or writes at the current position of the open file, which the loop would wait for:
   no operation of ours, which comes first, and nobody else, who may wait for a server. *)
let has_free_position t =
  t.alone = forks () && (not t.unfinished) && not (Lwt.is_sleeping t.reads.last)

(* Reads from the page cache, as Page_cache does. *)
let read_cached t name memory off len ~pos =
  match t.page_cache with
  | Some page_cache
  (* A read of no bytes may still fail. *)
    when len > 0
         && (pos <> Operation.current_position || has_free_position t)
         && Dispatcher.spend (Promise.dispatcher name "") len -> (
      match memory with
      | Bigarray buffer -> Page_cache.read page_cache buffer ~off ~len ~pos
      | Bytes bytes -> Page_cache.read_bytes page_cache bytes ~off ~len ~pos)
  | Some _ | None -> -1

let flags t exact operation =
  let operation = if t.dont_cache then Operation.dont_cache operation else operation in
  if exact then Operation.exact operation else operation

(* What direct I/O requires, and a transfer that failed does not fulfil; empty: it is something
   else. *)
let misalignment t kind memory off len ~pos =
  (* The descriptor may be another file's by now; and the question may wait for a server. *)
  if t.closed || not (Descriptor.is_local t.fd) then ""
  else
    match Direct_io.get t.fd with
    | exception Unix.Unix_error _ -> ""
    | { Direct_io.memory = address; offset = block; _ } ->
        let at_current = pos = Operation.current_position in
        let is_whole n = block < 1 || n mod block = 0 in
        let where = if at_current then "the current position" else Printf.sprintf "offset %d" pos in
        if not (is_whole len && (at_current || is_whole pos)) then
          Printf.sprintf "direct %s of %d bytes at %s: both must be multiples of %d" kind len where
            block
        else
          match memory with
          (* It is copied to aligned memory. *)
          | Bytes _ -> ""
          | Bigarray buffer
            when address < 1 || past_multiple (Buffer.sub buffer off len) address = 0 ->
              ""
          | Bigarray _ ->
              Printf.sprintf
                "direct %s of %d bytes at %s: the buffer's address must be a multiple of %d \
                 (Ringway.Buffer.create_aligned), and offset and length of %d"
                kind len where address block

(* An EINVAL of a transfer says what is wrong. *)
let explained t kind memory off len ~pos transfer =
  if not t.direct then transfer
  else
    Lwt.catch
      (fun () -> transfer)
      (function
        | Unix.Unix_error (EINVAL, name, "") ->
            Lwt.fail (Unix.Unix_error (EINVAL, name, misalignment t kind memory off len ~pos))
        | exn -> Lwt.fail exn)

let read_queued t ~name ~exact memory off len ~pos had =
  let finish = if had = 0 then Fun.id else fun more -> had + more in
  match memory with
  | Bigarray buffer ->
      let operation = flags t exact (Operation.read t.fd buffer ~off ~len ~pos) in
      run_at t t.reads ~pos name operation finish
  | Bytes bytes ->
      let buffer = Buffer_pool.take len in
      let operation = flags t exact (Operation.read t.fd buffer ~off:0 ~len ~pos) in
      run_at t t.reads
        ~on_end:(fun () -> Buffer_pool.give buffer)
        ~pos name operation
        (fun more ->
          Buffer.blit_to_bytes buffer 0 bytes off more;
          finish more)

let read t ~name ~exact memory off len ~pos =
  match read_cached t name memory off len ~pos with
  | exception exn -> Lwt.fail exn
  | read when read >= 0 -> Lwt.return read
  | missing ->
      let had = -missing - 1 in
      let pos = if pos = Operation.current_position then pos else pos + had in
      let len = len - had in
      let rest =
        explained t "read" memory (off + had) len ~pos
          (read_queued t ~name ~exact memory (off + had) len ~pos had)
      in
      if had = 0 || exact then rest
      else
        (* As for the system call, the bytes before an error are the result. *)
        Lwt.catch
          (fun () -> rest)
          (function Unix.Unix_error _ -> Lwt.return had | exn -> Lwt.fail exn)

let write t ~name ~exact memory off len ~pos =
  explained t "write" memory off len ~pos
  @@
  match memory with
  | Bigarray buffer ->
      let operation = flags t exact (Operation.write t.fd buffer ~off ~len ~pos) in
      run_at t t.writes ~on_end:(fun () -> note_written t) ~pos name operation Fun.id
  | Bytes bytes ->
      let buffer = Buffer_pool.take len in
      Buffer.blit_from_bytes bytes off buffer 0 len;
      let operation = flags t exact (Operation.write t.fd buffer ~off:0 ~len ~pos) in
      run_at t t.writes
        ~on_end:(fun () ->
          note_written t;
          Buffer_pool.give buffer)
        ~pos name operation Fun.id

let seek t offset whence =
  let turns = if t.seekable then t.reads else { last = Lwt.return_unit } in
  in_turn t turns (fun ~on_result ->
      let result = Descriptor.seek t.fd offset whence in
      Lwt.on_termination result (fun () -> on_result 0);
      Lwt.protected result)

let small name position =
  let int = Int64.to_int position in
  if Int64.of_int int = position then Lwt.return int
  else Lwt.fail (Unix.Unix_error (EOVERFLOW, name, ""))

let stat t decode =
  let buffer = Buffer_pool.take Stat.buffer_size in
  run t "fstat"
    ~on_end:(fun () -> Buffer_pool.give buffer)
    (Operation.statx ~dir:(Operation.directory t.fd) "" ~flags:Stat.empty_path ~mask:Stat.basic
       buffer)
    (fun _ -> decode buffer)

(* ---- Syncs ---------------------------------------------------------------------------------- *)

(* The group that the next sync is for. *)
let next_group t =
  let fresh =
    Some
      {
        full = false;
        waiters = Stdlib.Queue.create ();
        awaited = 0;
        inherited = 0;
        cancel = ignore;
      }
  in
  (* A finaliser may have made one meanwhile. *)
  if Option.is_none t.next_syncs then t.next_syncs <- fresh;
  Option.get t.next_syncs

(* Tells those who were not cancelled. *)
let wake_group group outcome =
  group.awaited <- 0;
  let rec wake () =
    match Stdlib.Queue.take_opt group.waiters with
    | None -> ()
    | Some (name, resolver) ->
        (match outcome name with
        | Ok () -> Lwt.wakeup_later resolver ()
        | Error exn -> Lwt.wakeup_later_exn resolver exn);
        wake ()
  in
  wake ()

(* The sync did not take place. *)
let is_void result =
  result = Dispatcher.in_parent || result = -Operation.ecanceled || result = Dispatcher.refused

(* What the callers are told: an error that was not reported yet comes first. *)
let result_to_report t group result =
  let result =
    if is_void result then result
    else begin
      let result = if t.unreported < 0 then t.unreported else result in
      t.unreported <- (if group.awaited = 0 then min result 0 else 0);
      result
    end
  in
  if group.inherited < 0 then group.inherited else result

(* What was inherited ends with its group. Otherwise an error would last as long as callers keep
   coming. *)
let bequeath t result =
  match t.next_syncs with
  | Some group when result < 0 && not (is_void result) -> group.inherited <- result
  | Some _ | None -> ()

(* Starts the sync that is due. *)
let rec start_sync t =
  match t.next_syncs with
  | Some { awaited = 0; _ } -> t.next_syncs <- None
  | Some group when not t.syncing -> start_group t group
  | Some _ | None -> ()

and start_group t group =
  let full = group.full in
  let operation = (if full then Operation.fsync else Operation.fdatasync) t.fd in
  let request = Dispatcher.prepare operation (end_sync t group) in
  let dispatcher = Promise.dispatcher "fsync" "" in
  let cancel () = Dispatcher.cancel dispatcher request in
  (* Nothing is allocated from here to the start. Before, a finaliser may have called [sync]. *)
  if t.syncing then ()
  else if group.full <> full then start_group t group
  else begin
    t.syncing <- true;
    t.next_syncs <- None;
    t.users <- t.users + 1;
    group.cancel <- cancel;
    try Dispatcher.restart dispatcher request
    with exn when not (Dispatcher.is_pending request) ->
      t.syncing <- false;
      ended t 0;
      raise exn
  end

and end_sync t group result =
  t.syncing <- false;
  bequeath t result;
  let reported = result_to_report t group result in
  (* Before the callers are told, who may sync again and inherit nothing. Before [ended], so that
     [shut] waits for those who wait here. *)
  start_next_sync t;
  wake_group group (fun name ->
      if reported < 0 then Error (Promise.exn name "" reported) else Ok ());
  ended t result

(* Nobody can be told of an exception but those who wait. *)
and start_next_sync t =
  match t.next_syncs with
  | None -> ()
  | Some group -> (
      try start_sync t
      with exn ->
        t.next_syncs <- None;
        wake_group group (fun _ -> Error exn))

let sync t name ~full =
  let promise, resolver = Lwt.task () in
  let group = next_group t in
  if full then group.full <- true;
  Stdlib.Queue.add (name, resolver) group.waiters;
  group.awaited <- group.awaited + 1;
  Lwt.on_cancel promise (fun () ->
      group.awaited <- group.awaited - 1;
      if group.awaited = 0 then group.cancel ());
  start_next_sync t;
  promise

let shut t =
  t.closed <- true;
  Int_map.iter (fun _ cancel -> cancel ()) t.cancels;
  (* A signal handler may have raised before it was started. *)
  start_next_sync t;
  if t.users = 0 then
    if t.unfinished then Lwt.fail (Unix.Unix_error (EIO, "close", "")) else Lwt.return_unit
  else begin
    let idle, resolver = Lwt.wait () in
    t.idle <- Some resolver;
    idle
  end
