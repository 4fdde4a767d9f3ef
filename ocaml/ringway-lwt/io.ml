open Ringway
open Lwt.Infix
include Lwt_io

type file = {
  fd : Unix.file_descr;
  (* If it can be read without waiting. *)
  page_cache : Page_cache.t option;
  transfer : Transfer.t;
  (* The result of the transfer that ended last, until a call returns it; [Lwt.Canceled]: it was not
     performed. *)
  mutable result : (int, exn) result option;
  (* Where input is read: explicit, so that a read that was cancelled does not skip data. Output is
     written at the position of the kernel, which [O_APPEND] needs. *)
  mutable pos : int64;
  (* Of the last write, if it failed. *)
  mutable unwritten : exn option;
  (* Final: an operation was lost with its queue, and may have taken effect. *)
  mutable lost : exn option;
  (* Sleeps while a thread seeks, which nothing cancels. *)
  mutable seeking : unit Lwt.t;
  (* The descriptor may belong to another file. *)
  mutable closed : bool;
}

(* A forked child leaves the [bytes] of a write in flight to its parent. *)
let start file name operation ~bytes =
  file.result <- None;
  Transfer.start file.transfer operation (fun result ->
      if Dispatcher.is_lost result then file.lost <- Some (Promise.exn name "" result);
      let result = if result = Dispatcher.in_parent then bytes else result in
      file.result <- Some (if result < 0 then Error (Promise.exn name "" result) else Ok result))

let advance file n = file.pos <- Int64.add file.pos (Int64.of_int n)

let rec read_file file buffer off len =
  if Transfer.is_running file.transfer then
    (* It was cancelled. What it has read is read again, since the channel may have moved its data
       within the buffer. *)
    Transfer.wait file.transfer >>= fun () -> read_file file buffer off len
  else if Option.is_some file.lost then Lwt.fail (Option.get file.lost)
    (* A program may seek there, but no file is that long. *)
  else if file.pos > Int64.of_int max_int then Lwt.return 0
  else
    let pos = Int64.to_int file.pos in
    let n = Descriptor.read_cached file.page_cache buffer ~off ~len ~pos in
    if n >= 0 then begin
      advance file n;
      Lwt.return n
    end
    else begin
      let again = -Operation.ecanceled in
      start file "read" (Operation.read file.fd buffer ~off ~len ~pos) ~bytes:again;
      Transfer.wait file.transfer >>= fun () ->
      match file.result with
      | Some (Ok n) ->
          advance file n;
          Lwt.return n
      | Some (Error Lwt.Canceled) | None -> read_file file buffer off len
      | Some (Error exn) -> Lwt.fail exn
    end

let rec write_file file buffer off len =
  if Transfer.is_running file.transfer then
    Transfer.wait file.transfer >>= fun () -> write_file file buffer off len
  else if Option.is_some file.lost then begin
    file.unwritten <- file.lost;
    Lwt.fail (Option.get file.lost)
  end
  else
    match file.result with
    | None ->
        start file "write"
          (Operation.write file.fd buffer ~off ~len ~pos:Operation.current_position)
          ~bytes:len;
        write_file file buffer off len
    | Some (Ok written) when written > 0 || len = 0 ->
        (* Also of a write that was cancelled: the data of the channel begins with the same
           bytes. *)
        file.result <- None;
        file.unwritten <- None;
        Lwt.return written
    | Some (Error Lwt.Canceled) ->
        file.result <- None;
        write_file file buffer off len
    | Some result ->
        let exn =
          match result with
          | Error exn -> exn
          (* A device that accepts no more bytes: the channel would write again for ever. *)
          | Ok _ -> Unix.Unix_error (ENOSPC, "write", "")
        in
        file.result <- None;
        file.unwritten <- Some exn;
        Lwt.fail exn

(* [Lwt_io.length] goes on with its second seek after the channel has been closed. *)
let seek file offset command =
  (* A write that was cancelled moves the position. *)
  Transfer.wait file.transfer >>= fun () ->
  if file.closed then Lwt.fail (Unix.Unix_error (EBADF, "lseek", ""))
  else
    let offset, command =
      match command with
      | Unix.SEEK_CUR -> (Int64.add file.pos offset, Unix.SEEK_SET)
      | Unix.SEEK_SET | Unix.SEEK_END -> (offset, command)
    in
    let sought = Descriptor.seek file.fd offset command in
    file.seeking <- Lwt.catch (fun () -> sought >|= ignore) (fun _ -> Lwt.return_unit);
    sought >|= fun pos ->
    file.pos <- pos;
    pos

let close_file file () =
  file.closed <- true;
  Transfer.stop file.transfer Lwt.Canceled >>= fun () ->
  file.seeking >>= fun () ->
  Transfer.close file.transfer (fun () -> Descriptor.close file.fd) >>= fun () ->
  match file.unwritten with None -> Lwt.return_unit | Some exn -> Lwt.fail exn

let of_file (type m) ?buffer ~(mode : m mode) fd : file * m channel =
  let file =
    {
      fd;
      page_cache = Descriptor.page_cache fd;
      transfer = Transfer.create ();
      result = None;
      pos = 0L;
      unwritten = None;
      lost = None;
      seeking = Lwt.return_unit;
      closed = false;
    }
  in
  let perform = match mode with Input -> read_file file | Output -> write_file file in
  (file, make ?buffer ~close:(close_file file) ~seek:(seek file) ~mode perform)

let open_file (type m) ?buffer ?flags ?perm ~(mode : m mode) path : m channel Lwt.t =
  let default_flags, default_perm =
    match mode with
    | Input -> ([ Unix.O_RDONLY; Unix.O_NONBLOCK ], 0)
    | Output -> ([ Unix.O_WRONLY; Unix.O_CREAT; Unix.O_TRUNC; Unix.O_NONBLOCK ], 0o666)
  in
  let flags = Option.value flags ~default:default_flags in
  let perm = Option.value perm ~default:default_perm in
  Descriptor.openfile path flags perm >|= function
  | Stream fd -> of_fd ?buffer ~mode fd
  | Seekable fd -> (
      try snd (of_file ?buffer ~mode fd)
      with exn ->
        Unix.close fd;
        raise exn)

let with_file ?buffer ?flags ?perm ~mode path f =
  open_file ?buffer ?flags ?perm ~mode path >>= fun channel ->
  Lwt.finalize (fun () -> f channel) (fun () -> close channel)

let prng = lazy (Random.State.make_self_init ())

(* Tries names until [f] succeeds with one. *)
let with_new_name ~directory ~prefix ~suffix f =
  let rec attempt n =
    let number = Random.State.int (Lazy.force prng) 0x1000000 in
    let path = Filename.concat directory (Printf.sprintf "%s%06x%s" prefix number suffix) in
    Lwt.catch
      (fun () -> f path)
      (function
        | Unix.Unix_error (EEXIST, _, _) when n < 1000 -> attempt (n + 1) | exn -> Lwt.fail exn)
  in
  attempt 0

let new_file = [ Unix.O_WRONLY; Unix.O_CREAT; Unix.O_EXCL; Unix.O_CLOEXEC ]

let open_temp_file ?buffer ?(flags = new_file) ?perm ?(temp_dir = Filename.get_temp_dir_name ())
    ?(prefix = "lwt_io_temp_file_") ?(suffix = "") () =
  with_new_name ~directory:temp_dir ~prefix ~suffix (fun path ->
      open_file ?buffer ~flags ?perm ~mode:Output path >|= fun channel -> (path, channel))

let with_temp_file ?buffer ?flags ?perm ?temp_dir ?prefix ?suffix f =
  open_temp_file ?buffer ?flags ?perm ?temp_dir ?prefix ?suffix () >>= fun (path, channel) ->
  Lwt.finalize
    (fun () -> f (path, channel))
    (fun () -> Lwt.no_cancel (Lwt.finalize (fun () -> close channel) (fun () -> Path.unlink path)))

let fsync fd = Promise.run "fsync" "" (Operation.fsync fd) ignore

let fsync_directory path =
  let flags = Operation.open_flags [ O_RDONLY ] in
  Descriptor.openat path ~flags 0 Fun.id >>= fun fd ->
  Lwt.finalize (fun () -> fsync fd) (fun () -> Descriptor.close fd)

let with_atomic_file ?buffer ?(perm = 0o666) path f =
  let directory = Filename.dirname path in
  let name = Filename.basename path in
  (* A name that is as long as the file system permits leaves no room for more. *)
  let prefix = "." ^ String.sub name 0 (min 200 (String.length name)) ^ "." in
  let create name =
    Descriptor.openat name ~flags:(Operation.open_flags new_file) perm
      (fun fd -> (name, fd))
      ~on_unwanted:(fun fd ->
        Descriptor.close_later fd;
        Lwt.on_any (Path.unlink name) ignore ignore)
  in
  with_new_name ~directory ~prefix ~suffix:".tmp" create >>= fun (name, fd) ->
  let file, channel = of_file ?buffer ~mode:Output fd in
  let commit () =
    flush channel >>= fun () ->
    fsync file.fd >>= fun () ->
    close channel >>= fun () -> Path.rename name path
  in
  Lwt.catch
    (fun () -> f channel >>= fun result -> Lwt.no_cancel (commit () >|= fun () -> result))
    (fun exn ->
      let clean_up () = Lwt.finalize (fun () -> abort channel) (fun () -> Path.unlink name) in
      Lwt.no_cancel (Lwt.catch clean_up (fun _ -> Lwt.return_unit)) >>= fun () -> Lwt.fail exn)
  >>= fun result -> Lwt.no_cancel (fsync_directory directory) >|= fun () -> result

let file_length path =
  let buffer = Buffer.create Stat.buffer_size in
  match Operation.statx path ~flags:0 ~mask:Stat.basic buffer with
  | exception Invalid_argument _ -> Lwt.fail (Unix.Unix_error (ENOENT, "stat", path))
  | operation -> (
      Promise.run "stat" path operation (fun _ -> (Stat.large buffer).st_kind) >>= function
      | S_DIR -> Lwt.fail (Unix.Unix_error (EISDIR, "file_length", path))
      | _ -> with_file ~mode:Input path length)

let stream_of_file read path =
  let channel =
    lazy
      ( open_file ~mode:Input path >|= fun channel ->
        Gc.finalise (fun channel -> ignore (close channel)) channel;
        channel )
  in
  Lwt_stream.from (fun () ->
      Lazy.force channel >>= fun channel ->
      read channel >>= function
      | None -> close channel >|= fun () -> None
      | some -> Lwt.return some)

let lines_of_file path = stream_of_file read_line_opt path
let chars_of_file path = stream_of_file read_char_opt path

let lines_to_file path lines =
  with_file ~mode:Output path (fun channel -> write_lines channel lines)

let chars_to_file path chars =
  with_file ~mode:Output path (fun channel -> write_chars channel chars)
