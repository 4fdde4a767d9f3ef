open Ringway

type t = Seekable of Unix.file_descr | Stream of Lwt_unix.file_descr

external kind : Unix.file_descr -> int = "ringway_lwt_kind" [@@noalloc]

let is_file fd = kind fd >= 1
let is_local fd = kind fd = 2
let is_open fd = kind fd >= 0
let page_cache fd = if is_local fd then Some (Page_cache.create fd) else None

let read_cached page_cache buffer ~off ~len ~pos =
  match page_cache with
  | Some page_cache when Dispatcher.spend (Promise.dispatcher "read" "") len ->
      let n = Page_cache.read page_cache buffer ~off ~len ~pos in
      if n < -1 then -n - 1 else n
  | Some _ | None -> -1

(* Not with close(2), which may wait: for a server, for example. *)
let close_later fd =
  match Dispatcher.start (Dispatcher.current ()) (Operation.close fd) ignore with
  | (_ : Dispatcher.request) -> ()
  | exception Queue.Error _ -> Unix.close fd

let openat ?(on_unwanted = close_later) path ~flags perm finish =
  (* openat2(2) refuses more than permissions. *)
  match Operation.openat path ~flags ~perm:(perm land 0o7777) with
  | exception Invalid_argument _ -> Lwt.fail (Unix.Unix_error (Unix.ENOENT, "open", path))
  | operation ->
      Promise.run "open" path operation
        (fun result -> finish (Operation.descriptor_of_result result))
        ~on_unwanted:(fun result -> on_unwanted (Operation.descriptor_of_result result))

let openfile path flags perm =
  openat path ~flags:(Operation.open_flags flags) perm (fun fd ->
      if is_file fd then Seekable fd else Stream (Lwt_unix.of_unix_file_descr fd))

(* At the limit of descriptors there may be no queue, and nobody closes the descriptor later. *)
let close fd =
  match Dispatcher.current () with
  | exception Queue.Error _ -> Lwt.wrap1 Unix.close fd
  | (_ : Dispatcher.t) -> Lwt.no_cancel (Promise.run "close" "" (Operation.close fd) ignore)

(* On a thread of Lwt: the end of a file is what its server says, and the kernel lets one thread at
   a time use the position of an open file, which another process may have too. *)
let seek fd offset whence =
  let ch = Lwt_unix.of_unix_file_descr ~blocking:true ~set_flags:false fd in
  Lwt.no_cancel (Lwt_unix.LargeFile.lseek ch offset whence)
