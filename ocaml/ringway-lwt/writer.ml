open Ringway
open Lwt.Infix

type destination = File of Unix.file_descr | Connection of Lwt_unix.file_descr

type t = {
  destination : destination;
  close_destination : unit -> unit Lwt.t;
  buffer : Buffer.t;
  (* The data that was not written is in [start, stop). *)
  mutable start : int;
  mutable stop : int;
  transfer : Transfer.t;
  (* The write in progress, if it is not [transfer]'s. *)
  mutable sending : int Lwt.t;
  mutable error : exn option;
  lock : Lwt_mutex.t;
  (* No call begins any more. *)
  mutable closing : unit Lwt.t option;
  (* Calls in progress fail. *)
  mutable aborted : bool;
  (* The end of the operation that was in flight then. *)
  mutable stopped : unit Lwt.t;
}

let default_buffer_size = 32 * 1024

(* The most bytes of one write: a larger one is cancelled late and needs as much memory in the
   kernel. *)
let max_write = 1024 * 1024

let closed_exn = Unix.Unix_error (Unix.EBADF, "write", "")
let buffered t = t.stop - t.start
let is_closed t = Option.is_some t.closing

let make buffer_size destination close_destination =
  if buffer_size <= 0 then invalid_arg "Ringway_lwt.Writer: buffer_size is not positive";
  {
    destination;
    close_destination;
    buffer = Buffer.create_aligned buffer_size;
    start = 0;
    stop = 0;
    transfer = Transfer.create ();
    sending = Lwt.return 0;
    error = None;
    lock = Lwt_mutex.create ();
    closing = None;
    aborted = false;
    stopped = Lwt.return_unit;
  }

let failure t = if t.aborted then Some closed_exn else t.error

(* The first error is final, also one that leaves unknown whether the operation took effect. *)
let record_exn t exn = if Option.is_none t.error then t.error <- Some exn

let record_error t name result =
  let was_not_performed = result = -Operation.ecanceled || result = Dispatcher.in_parent in
  if result < 0 && not was_not_performed then record_exn t (Promise.exn name "" result)

(* A device that accepts no more bytes: to write again would have no end. *)
let no_space = Unix.Unix_error (Unix.ENOSPC, "write", "")

(* [n] bytes of some have been written. *)
let record_written t written n = if n = 0 then record_exn t no_space else written n

let start_write t buffer off len written =
  let len = min len max_write in
  let write fd = Operation.write fd buffer ~off ~len ~pos:Operation.current_position in
  let operation =
    match t.destination with
    | File fd -> write fd
    | Connection fd ->
        (* As Lwt_unix does: the number of a closed one may belong to another file. *)
        Lwt_unix.check_descriptor fd;
        Operation.socket (write (Lwt_unix.unix_file_descr fd))
  in
  Transfer.start t.transfer operation (fun result ->
      if result >= 0 then record_written t written result
      else if result = Dispatcher.in_parent then written len
      else record_error t "write" result)

(* Writes a part of the range and waits with [wait]. [written n] is called when [n] bytes have been
   written, even if the promise was cancelled. *)
let write_some t wait buffer off len written =
  match t.destination with
  | Connection fd when not (Engine.installed ()) ->
      t.sending <- Lwt_bytes.write fd buffer off len;
      Lwt.try_bind
        (fun () -> t.sending)
        (fun n ->
          record_written t written n;
          Lwt.return_unit)
        (fun exn ->
          if t.aborted then Lwt.fail closed_exn
          else begin
            if exn <> Lwt.Canceled then record_exn t exn;
            Lwt.fail exn
          end)
  | File _ | Connection _ ->
      start_write t buffer off len written;
      wait t.transfer

let written_from_buffer t n =
  t.start <- t.start + n;
  if t.start = t.stop then begin
    t.start <- 0;
    t.stop <- 0
  end

(* Called with the lock held. *)
let rec flush_buffer t =
  match failure t with
  | Some exn -> Lwt.fail exn
  | None ->
      if Transfer.is_running t.transfer then
        Transfer.wait t.transfer >>= fun () -> flush_buffer t
      else if buffered t = 0 then Lwt.return_unit
      else
        write_some t Transfer.wait t.buffer t.start (buffered t) (written_from_buffer t)
        >>= fun () -> flush_buffer t

let locked t f =
  if is_closed t then Lwt.fail closed_exn else Transfer.locked t.lock f

let room t = Buffer.length t.buffer - t.stop

(* [blit] does not allocate, so no finaliser writes to the same place. *)
let append t blit source off len =
  blit source off t.buffer t.stop len;
  t.stop <- t.stop + len

let rec append_all t blit source off len =
  let n = min len (room t) in
  (* The kernel accesses nothing behind [stop]. *)
  append t blit source off n;
  if n = len then Lwt.return_unit
  else flush_buffer t >>= fun () -> append_all t blit source (off + n) (len - n)

let range off len length =
  let len = match len with Some len -> len | None -> length - off in
  if off < 0 || len < 0 || off > length - len then
    invalid_arg "Ringway_lwt.Writer: the range is outside of the buffer";
  len

let write_with t blit source off len =
  if
    (not (is_closed t))
    && Option.is_none t.error
    && (not (Lwt_mutex.is_locked t.lock))
    && len <= room t
  then begin
    append t blit source off len;
    Lwt.return_unit
  end
  else
    locked t (fun () ->
        match failure t with Some exn -> Lwt.fail exn | None -> append_all t blit source off len)

let write t ?(off = 0) ?len string =
  write_with t Buffer.blit_from_string string off (range off len (String.length string))

let write_bytes t ?(off = 0) ?len bytes =
  write_with t Buffer.blit_from_bytes bytes off (range off len (Bytes.length bytes))

let write_char t char = write t (String.make 1 char)

let write_buffer t ?(off = 0) ?len buffer =
  let len = range off len (Buffer.length buffer) in
  if len < Buffer.length t.buffer then write_with t Buffer.blit buffer off len
  else
    let stop = off + len in
    let rec loop off =
      (* Also waits for a write that was cancelled, and tells its error. *)
      flush_buffer t >>= fun () ->
      if off = stop then Lwt.return_unit
      else
        let next = ref off in
        write_some t Transfer.wait_or_cancel buffer off (stop - off) (fun n -> next := off + n)
        >>= fun () -> loop !next
    in
    locked t (fun () -> loop off)

(* A write has to be started, and nobody else writes. *)
let must_write t =
  buffered t > 0
  && (not (is_closed t))
  && Option.is_none (failure t)
  && (not (Lwt_mutex.is_locked t.lock))
  && (not (Transfer.is_running t.transfer))
  && match t.destination with File _ -> true | Connection _ -> Engine.installed ()

let flush t =
  let flush () = flush_buffer t in
  if must_write t then begin
    (* Does not wait. *)
    ignore (Lwt_mutex.lock t.lock : unit Lwt.t);
    match start_write t t.buffer t.start (buffered t) (written_from_buffer t) with
    | () -> Transfer.wait_locked t.transfer t.lock flush
    | exception exn ->
        Lwt_mutex.unlock t.lock;
        Lwt.fail exn
  end
  else locked t flush

let fsync t =
  locked t (fun () ->
      flush_buffer t >>= fun () ->
      match t.destination with
      | Connection _ -> Lwt.fail (Unix.Unix_error (Unix.EINVAL, "fsync", ""))
      | File fd ->
          let failed = ref None in
          Transfer.start t.transfer (Operation.fsync fd) (fun result ->
              if result < 0 then failed := Some (Promise.exn "fsync" "" result);
              record_error t "fsync" result);
          Transfer.wait_or_cancel t.transfer >>= fun () ->
          match !failed with Some exn -> Lwt.fail exn | None -> Lwt.return_unit)

let close_with t f =
  match t.closing with
  | Some closing -> Lwt.protected closing
  | None ->
      let closing, resolver = Lwt.wait () in
      t.closing <- Some closing;
      Lwt.on_any
        (Lwt.finalize f (fun () ->
             t.stopped >>= fun () -> Transfer.close t.transfer t.close_destination))
        (Lwt.wakeup_later resolver) (Lwt.wakeup_later_exn resolver);
      Lwt.protected closing

let close t = close_with t (fun () -> Lwt_mutex.with_lock t.lock (fun () -> flush_buffer t))

let abort t =
  if not t.aborted then begin
    t.aborted <- true;
    t.stopped <- Transfer.stop t.transfer closed_exn;
    Lwt.cancel t.sending
  end;
  let closed = close_with t Lwt.return in
  (* A [close] in progress fails, since it cannot flush. *)
  Lwt.catch (fun () -> closed) (fun _ -> Lwt.return_unit)

let of_connection ?(buffer_size = default_buffer_size) ?close fd =
  let close = match close with Some close -> close | None -> fun () -> Lwt_unix.close fd in
  make buffer_size (Connection fd) close

let open_file ?(buffer_size = default_buffer_size)
    ?(flags = [ Unix.O_WRONLY; Unix.O_CREAT; Unix.O_TRUNC; Unix.O_CLOEXEC ]) ?(perm = 0o666) path =
  if buffer_size <= 0 then invalid_arg "Ringway_lwt.Writer: buffer_size is not positive";
  Descriptor.openfile path flags perm >|= function
  | Seekable fd -> make buffer_size (File fd) (fun () -> Descriptor.close fd)
  | Stream fd -> of_connection ~buffer_size fd

let with_file ?buffer_size ?flags ?perm path f =
  open_file ?buffer_size ?flags ?perm path >>= fun t ->
  Lwt.finalize (fun () -> f t) (fun () -> close t)
