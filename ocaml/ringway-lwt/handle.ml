open Ringway

type memory = Bigarray of Buffer.t | Bytes of Bytes.t

type t = {
  fd : Unix.file_descr;
  direct : bool;
  seekable : bool;
  mutable closed : bool;
  (* Operations that have not ended. *)
  mutable users : int;
  mutable idle : unit Lwt.u option;
  (* [ended t], allocated once. *)
  on_end : (unit -> unit) option;
  (* Sleeps until the last operation at the current position has ended. *)
  mutable position : unit Lwt.t;
  (* Of files that are not seekable: how to cancel each operation. *)
  mutable next_key : int;
  cancels : (int, unit -> unit) Hashtbl.t;
}

external is_direct : Unix.file_descr -> bool = "ringway_lwt_is_direct" [@@noalloc]

let is_seekable fd =
  match Unix.lseek fd 0 Unix.SEEK_CUR with
  | _ -> true
  | exception Unix.Unix_error (EOVERFLOW, _, _) -> true
  | exception Unix.Unix_error _ -> false

let ended t =
  t.users <- t.users - 1;
  if t.users = 0 then
    match t.idle with
    | None -> ()
    | Some resolver ->
        t.idle <- None;
        Lwt.wakeup_later resolver ()

let create fd =
  let rec t =
    {
      fd;
      direct = is_direct fd;
      seekable = is_seekable fd;
      closed = false;
      users = 0;
      idle = None;
      on_end = Some (fun () -> ended t);
      position = Lwt.return_unit;
      next_key = 0;
      cancels = Hashtbl.create 1;
    }
  in
  t

let descriptor t = t.fd
let is_closed t = t.closed
let is_seekable t = t.seekable
let is_idle t = t.users = 0
let is_cached t = t.seekable && not t.direct

(* Lets [shut] cancel the operation of a promise. *)
let interruptible t name promise =
  let key = t.next_key in
  t.next_key <- key + 1;
  Hashtbl.replace t.cancels key (fun () -> Lwt.cancel promise);
  Lwt.try_bind
    (fun () -> promise)
    (fun value ->
      Hashtbl.remove t.cancels key;
      Lwt.return value)
    (fun exn ->
      Hashtbl.remove t.cancels key;
      match exn with
      | Lwt.Canceled when t.closed -> Lwt.fail (Unix.Unix_error (EBADF, name, ""))
      | exn -> Lwt.fail exn)

let run t ?on_end name operation finish =
  let on_end =
    match on_end with
    | None -> t.on_end
    | Some on_end ->
        Some
          (fun () ->
            on_end ();
            ended t)
  in
  (* Nothing is allocated before the call, so no signal handler can raise before it. *)
  t.users <- t.users + 1;
  let promise = Promise.run ?on_end name "" operation finish in
  if t.seekable then promise else interruptible t name promise

let in_turn t go =
  let previous = t.position in
  let turn, next = Lwt.wait () in
  let on_end () =
    if Lwt.is_sleeping turn then begin
      Lwt.wakeup_later next ();
      ended t
    end
  in
  (* A signal handler may raise before the operation is started. *)
  let go () =
    try go ~on_end
    with exn ->
      on_end ();
      raise exn
  in
  t.position <- turn;
  t.users <- t.users + 1;
  if not (Lwt.is_sleeping previous) then go ()
  else
    try
      let gate, opener = Lwt.task () in
      let result = Lwt.bind gate go in
      (* A cancelled one still waits for its turn, so that the next does not come too early. *)
      Lwt.on_success previous (fun () ->
          if Lwt.is_sleeping gate then Lwt.wakeup_later opener () else on_end ());
      result
    with exn ->
      Lwt.on_success previous on_end;
      raise exn

(* An operation at [pos]. *)
let run_at t ?on_end ~pos name operation finish =
  if pos <> Operation.current_position || not t.seekable then run t ?on_end name operation finish
  else
    in_turn t (fun ~on_end:turn_ended ->
        let on_end () =
          Option.iter (fun on_end -> on_end ()) on_end;
          turn_ended ()
        in
        Promise.run ~on_end name "" operation finish)

(* Reads from the page cache, as Page_cache does. Not if an operation at the current position is in
   flight, which comes first. *)
let read_cached t memory off len ~pos =
  if
    is_cached t
    (* A read of no bytes may still fail. *)
    && len > 0
    && (pos <> Operation.current_position || not (Lwt.is_sleeping t.position))
    && Dispatcher.spend (Dispatcher.current ()) len
  then
    match memory with
    | Bigarray buffer -> Page_cache.read t.fd buffer ~off ~len ~pos
    | Bytes bytes -> Page_cache.read_bytes t.fd bytes ~off ~len ~pos
  else -1

let flags exact operation = if exact then Operation.exact operation else operation

let read_queued t ~name ~exact memory off len ~pos had =
  let finish = if had = 0 then Fun.id else fun more -> had + more in
  match memory with
  | Bigarray buffer ->
      let operation = flags exact (Operation.read t.fd buffer ~off ~len ~pos) in
      run_at t ~pos name operation finish
  | Bytes bytes ->
      let buffer = Buffer_pool.take len in
      let operation = flags exact (Operation.read t.fd buffer ~off:0 ~len ~pos) in
      run_at t
        ~on_end:(fun () -> Buffer_pool.give buffer)
        ~pos name operation
        (fun more ->
          Buffer.blit_to_bytes buffer 0 bytes off more;
          finish more)

let read t ~name ~exact memory off len ~pos =
  match read_cached t memory off len ~pos with
  | exception exn -> Lwt.fail exn
  | read when read >= 0 -> Lwt.return read
  | missing ->
      let had = -missing - 1 in
      let pos = if pos = Operation.current_position then pos else pos + had in
      let rest = read_queued t ~name ~exact memory (off + had) (len - had) ~pos had in
      if had = 0 || exact then rest
      else
        (* As for the system call, the bytes before an error are the result. *)
        Lwt.catch
          (fun () -> rest)
          (function Unix.Unix_error _ -> Lwt.return had | exn -> Lwt.fail exn)

let write t ~name ~exact memory off len ~pos =
  match memory with
  | Bigarray buffer ->
      let operation = flags exact (Operation.write t.fd buffer ~off ~len ~pos) in
      run_at t ~pos name operation Fun.id
  | Bytes bytes ->
      let buffer = Buffer_pool.take len in
      Buffer.blit_from_bytes bytes off buffer 0 len;
      let operation = flags exact (Operation.write t.fd buffer ~off:0 ~len ~pos) in
      run_at t ~on_end:(fun () -> Buffer_pool.give buffer) ~pos name operation Fun.id

let seek t unix_seek offset whence =
  in_turn t (fun ~on_end ->
      let result = Lwt.wrap (fun () -> unix_seek t.fd offset whence) in
      on_end ();
      result)

let stat t decode =
  let buffer = Buffer_pool.take Stat.buffer_size in
  run t "fstat"
    ~on_end:(fun () -> Buffer_pool.give buffer)
    (Operation.statx ~dir:(Operation.directory t.fd) "" ~flags:Stat.empty_path ~mask:Stat.basic
       buffer)
    (fun _ -> decode buffer)

let shut t =
  t.closed <- true;
  let cancels = Hashtbl.fold (fun _ cancel all -> cancel :: all) t.cancels [] in
  List.iter (fun cancel -> cancel ()) cancels;
  if t.users = 0 then Lwt.return_unit
  else begin
    let idle, resolver = Lwt.wait () in
    t.idle <- Some resolver;
    idle
  end
