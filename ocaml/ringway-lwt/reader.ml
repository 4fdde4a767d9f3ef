open Ringway
open Lwt.Infix

type file = {
  fd : Unix.file_descr;
  (* If it can be read without waiting. *)
  page_cache : Page_cache.t option;
  (* Explicit, not the kernel's: a read that is cancelled after it has advanced the position would
     lose data. *)
  mutable pos : int;
}

(* What a transfer that has brought no data has left to be told. *)
type outcome = Nothing | End | Failed of exn | Lost of exn (* for ever: it may have received *)

type source = File of file | Connection of Lwt_unix.file_descr

type t = {
  source : source;
  close_source : unit -> unit Lwt.t;
  buffer : Buffer.t;
  (* The data that was read and not consumed is in [start, stop). *)
  mutable start : int;
  mutable stop : int;
  (* Data in front of that: what a call had consumed that then failed or was cancelled. *)
  mutable unread : string;
  transfer : Transfer.t;
  (* The operation that fills the buffer from a connection; prepared by the first. *)
  mutable receive : Dispatcher.request;
  (* The receive in progress, if it is not [transfer]'s. *)
  mutable receiving : int Lwt.t;
  (* The last receive has filled the buffer, so more data is there. *)
  mutable more : bool;
  (* Of the transfer that ended last, until [fill] returns it. *)
  mutable outcome : outcome;
  lock : Lwt_mutex.t;
  mutable closed : unit Lwt.t option;
}

let default_buffer_size = 32 * 1024
let closed_exn = Unix.Unix_error (Unix.EBADF, "read", "")
let buffered t = String.length t.unread + t.stop - t.start
let is_settled t = match t.outcome with Nothing -> true | End | Failed _ | Lost _ -> false
let is_closed t = Option.is_some t.closed

let make buffer_size source close_source =
  if buffer_size <= 0 then invalid_arg "Ringway_lwt.Reader: buffer_size is not positive";
  {
    source;
    close_source;
    buffer = Buffer.create_aligned buffer_size;
    start = 0;
    stop = 0;
    unread = "";
    transfer = Transfer.create ();
    receive = Dispatcher.no_request;
    receiving = Lwt.return 0;
    more = false;
    outcome = Nothing;
    lock = Lwt_mutex.create ();
    closed = None;
  }

let received t n =
  t.start <- 0;
  t.stop <- n;
  t.more <- n = Buffer.length t.buffer;
  match t.source with File file -> file.pos <- file.pos + n | Connection _ -> ()

let ended t result =
  if result > 0 then received t result
  else if result = 0 then t.outcome <- End
  else
    match Promise.exn "read" "" result with
    | Lwt.Canceled -> ()
    | exn -> t.outcome <- (if Dispatcher.is_lost result then Lost exn else Failed exn)

let start_receive t fd =
  (* As Lwt_unix does: the number of a closed one may belong to another file. *)
  Lwt_unix.check_descriptor fd;
  if t.receive == Dispatcher.no_request then
    t.receive <-
      Transfer.prepare t.transfer
        (Operation.socket
           (Operation.read
              (Lwt_unix.unix_file_descr fd)
              t.buffer ~off:0 ~len:(Buffer.length t.buffer) ~pos:Operation.current_position))
        (ended t);
  Transfer.restart t.transfer t.receive

(* A receive through Lwt, which takes no data if it is cancelled. *)
let receive t receiving =
  t.receiving <- receiving;
  Lwt.catch
    (fun () -> receiving)
    (fun exn -> Lwt.fail (if is_closed t then closed_exn else exn))

(* Moves data to the empty buffer and goes on with [next true], or with [next false] at the end of
   the data. Called with the lock held. *)
let rec fill t next =
  if is_closed t then Lwt.fail closed_exn
  else if buffered t > 0 then next true
  else
    match t.outcome with
    | Lost exn -> Lwt.fail exn
    | Failed exn ->
        t.outcome <- Nothing;
        Lwt.fail exn
    | End ->
        t.outcome <- Nothing;
        next false
    | Nothing -> fill_empty t next

(* Nothing is left to be told. *)
and fill_empty t next =
  if Transfer.is_running t.transfer then Transfer.wait t.transfer >>= fun () -> fill t next
  else
    let length = Buffer.length t.buffer in
    match t.source with
    | Connection fd when not (Engine.installed ()) ->
        receive t (Lwt_bytes.read fd t.buffer 0 length) >>= fun n ->
        if n > 0 then received t n;
        next (n > 0)
    | Connection fd ->
        start_receive t fd;
        fill t next
    | File file ->
        let n =
          Descriptor.read_cached file.page_cache t.buffer ~off:0 ~len:length ~pos:file.pos
        in
        if n > 0 then begin
          received t n;
          next true
        end
        else if n = 0 then next false
        else begin
          Transfer.start t.transfer
            (Operation.read file.fd t.buffer ~off:0 ~len:length ~pos:file.pos)
            (ended t);
          fill t next
        end

(* Moves at most [len] bytes of what is buffered. The functions do not allocate, so no finaliser
   takes the same bytes. *)
let rec take t blit_string blit destination off len =
  let unread = t.unread in
  if unread <> "" then begin
    let n = min len (String.length unread) in
    let rest = String.sub unread n (String.length unread - n) in
    if t.unread != unread then take t blit_string blit destination off len
    else begin
      blit_string unread 0 destination off n;
      t.unread <- rest;
      n
    end
  end
  else begin
    let n = min len (t.stop - t.start) in
    blit t.buffer t.start destination off n;
    t.start <- t.start + n;
    n
  end

let take_bytes t bytes off len = take t Bytes.blit_string Buffer.blit_to_bytes bytes off len

let take_buffer t buffer off len = take t Buffer.blit_from_string Buffer.blit buffer off len
let locked t f = Transfer.locked t.lock f

(* Nothing is buffered, in progress, or left to be told, so the source can be read past the
   buffer. *)
let can_bypass t length =
  is_settled t
  && (not (Transfer.is_running t.transfer))
  && length >= Buffer.length t.buffer
  && (match Dispatcher.current () with
     | dispatcher -> Dispatcher.spend dispatcher length
     | exception Queue.Error _ -> false)

(* Reads at once what is buffered or, past the buffer, what is cached. The result is minus 1 if that
   is nothing. *)
let read_at_once t take read_cached destination off len =
  if is_closed t || Lwt_mutex.is_locked t.lock then -1
  else if buffered t > 0 then take t destination off len
  else
    match t.source with
    | File ({ page_cache = Some page_cache; _ } as file) when can_bypass t len ->
        let n = read_cached page_cache destination ~off ~len ~pos:file.pos in
        let n = if n < -1 then -n - 1 else n in
        if n > 0 then file.pos <- file.pos + n;
        n
    | File _ | Connection _ -> -1

(* Nobody else reads, and nothing is there yet. *)
let must_receive t =
  buffered t = 0 && is_settled t
  && (not (is_closed t))
  && (not (Lwt_mutex.is_locked t.lock))
  && Engine.installed ()

(* [locked t read], where [must_receive t]. *)
let receive_locked t fd read =
  (* Does not wait. *)
  ignore (Lwt_mutex.lock t.lock : unit Lwt.t);
  match if not (Transfer.is_running t.transfer) then start_receive t fd with
  | () -> Transfer.wait_locked t.transfer t.lock read
  | exception exn ->
      Lwt_mutex.unlock t.lock;
      Lwt.fail exn

let read_with take read_cached t off len destination =
  if len = 0 && not (is_closed t) then Lwt.return (`Ok 0)
  else
    match read_at_once t take read_cached destination off len with
    | 0 -> Lwt.return `Eof
    | n when n > 0 -> Lwt.return (`Ok n)
    | _ -> (
        let read () =
          fill t (fun more ->
              Lwt.return (if more then `Ok (take t destination off len) else `Eof))
        in
        match t.source with
        | Connection fd when must_receive t -> receive_locked t fd read
        | File _ | Connection _ -> locked t read)

let range off len length =
  let len = match len with Some len -> len | None -> length - off in
  if off < 0 || len < 0 || off > length - len then
    invalid_arg "Ringway_lwt.Reader: the range is outside of the buffer";
  len

(* Where much data is expected it is received without the copy in the buffer: through Lwt, which
   reads at once, and waits for readiness only if there is none. *)
let receives_directly t len =
  len >= Buffer.length t.buffer
  && buffered t = 0 && is_settled t
  && (not (Transfer.is_running t.transfer))
  && (not (is_closed t))
  && (not (Lwt_mutex.is_locked t.lock))
  && (t.more || not (Engine.installed ()))

let read t ?(off = 0) ?len bytes =
  let len = range off len (Bytes.length bytes) in
  match t.source with
  | Connection fd when receives_directly t len ->
      locked t (fun () ->
          receive t (Lwt_unix.read fd bytes off len) >|= fun n ->
          t.more <- n = len;
          if n = 0 then `Eof else `Ok n)
  | File _ | Connection _ -> read_with take_bytes Page_cache.read_bytes t off len bytes

let read_buffer t ?(off = 0) ?len buffer =
  let len = range off len (Buffer.length buffer) in
  read_with take_buffer Page_cache.read t off len buffer

(* [consumed ()] is what [f] has taken so far; it is data again if [f] fails. *)
let all_or_nothing t consumed f =
  locked t (fun () ->
      Lwt.catch f (fun exn ->
          t.unread <- consumed () ^ t.unread;
          Lwt.fail exn))

let read_exactly t ?(off = 0) ?len bytes =
  let len = range off len (Bytes.length bytes) in
  let had = ref 0 in
  let rec loop () =
    if !had = len then Lwt.return `Ok
    else
      fill t (function
        | false -> Lwt.return (`Eof !had)
        | true ->
            had := !had + take_bytes t bytes (off + !had) (len - !had);
            loop ())
  in
  all_or_nothing t (fun () -> Bytes.sub_string bytes off !had) loop

let read_char t =
  let char = Bytes.create 1 in
  read t char >|= function `Ok _ -> `Ok (Bytes.get char 0) | `Eof -> `Eof

(* The length of the data that [take] moves next, up to and with the first [delimiter], and whether
   there is one. *)
let find t delimiter =
  let rec find_in_buffer i =
    if i = t.stop then (i - t.start, false)
    else if Bigarray.Array1.unsafe_get t.buffer i = delimiter then (i + 1 - t.start, true)
    else find_in_buffer (i + 1)
  in
  if t.unread = "" then find_in_buffer t.start
  else
    match String.index_opt t.unread delimiter with
    | Some i -> (i + 1, true)
    | None -> (String.length t.unread, false)

let read_until t delimiter =
  let part = Stdlib.Buffer.create 128 in
  let rec loop () =
    fill t (function
      | false ->
          Lwt.return
            (if Stdlib.Buffer.length part = 0 then `Eof
            else `Ok (Stdlib.Buffer.contents part, false))
      | true ->
          let len, found = find t delimiter in
          let bytes = Bytes.create len in
          ignore (take_bytes t bytes 0 len);
          Stdlib.Buffer.add_bytes part bytes;
          if found then
            Lwt.return (`Ok (Stdlib.Buffer.sub part 0 (Stdlib.Buffer.length part - 1), true))
          else loop ())
  in
  all_or_nothing t (fun () -> Stdlib.Buffer.contents part) loop

let read_line t =
  read_until t '\n' >|= function
  | `Eof -> `Eof
  | `Ok (line, complete) ->
      let length = String.length line in
      if complete && length > 0 && line.[length - 1] = '\r' then
        `Ok (String.sub line 0 (length - 1))
      else `Ok line

let close t =
  match t.closed with
  | Some closed -> Lwt.protected closed
  | None ->
      let closed, resolver = Lwt.wait () in
      t.closed <- Some closed;
      Lwt.cancel t.receiving;
      let stop () = Transfer.stop t.transfer closed_exn in
      Lwt.on_any
        (Lwt.finalize stop (fun () -> Transfer.close t.transfer t.close_source))
        (Lwt.wakeup_later resolver) (Lwt.wakeup_later_exn resolver);
      Lwt.protected closed

let of_connection ?(buffer_size = default_buffer_size) ?close fd =
  let close = match close with Some close -> close | None -> fun () -> Lwt_unix.close fd in
  make buffer_size (Connection fd) close

let open_file ?(buffer_size = default_buffer_size) ?(flags = [ Unix.O_RDONLY; Unix.O_CLOEXEC ])
    path =
  if buffer_size <= 0 then invalid_arg "Ringway_lwt.Reader: buffer_size is not positive";
  Descriptor.openfile path flags 0 >|= function
  | Seekable fd ->
      let file = { fd; page_cache = Descriptor.page_cache fd; pos = 0 } in
      make buffer_size (File file) (fun () -> Descriptor.close fd)
  | Stream fd -> of_connection ~buffer_size fd

let with_file ?buffer_size ?flags path f =
  open_file ?buffer_size ?flags path >>= fun t ->
  Lwt.finalize (fun () -> f t) (fun () -> close t)
