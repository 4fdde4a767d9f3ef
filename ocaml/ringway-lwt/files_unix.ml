open Ringway
include Lwt_unix

(* ---- Which descriptors are files ------------------------------------------------------------ *)

(* [owner] has the number now. Another [file_descr] with the same number is another file, or has
   been closed. [handle] is [None] if Lwt_unix is in charge. *)
type entry = { owner : Lwt_unix.file_descr; handle : Handle.t option }

(* By number. *)
let entries : entry option array ref = ref [||]

external int_of_descriptor : Unix.file_descr -> int = "%identity"

let number ch = int_of_descriptor (Lwt_unix.unix_file_descr ch)

let known ch =
  let n = number ch in
  if n >= 0 && n < Array.length !entries then
    match Array.unsafe_get !entries n with
    | Some { owner; _ } as entry when owner == ch -> entry
    | _ -> None
  else None

let forget ch = if known ch <> None then !entries.(number ch) <- None

let remember ch handle =
  let n = number ch in
  let entry = Some { owner = ch; handle } in
  while n >= Array.length !entries do
    let longer = Array.make (max 64 (max (n + 1) (2 * Array.length !entries))) None in
    (* A finaliser may have made it longer meanwhile. *)
    let shorter = !entries in
    if Array.length longer > Array.length shorter then begin
      Array.blit shorter 0 longer 0 (Array.length shorter);
      entries := longer
    end
  done;
  !entries.(n) <- entry

(* Lwt_unix decides whether a descriptor blocks at its first transfer, and changes the flags of its
   number. We make those transfers, so this must not happen later: the number may be another file's
   by then. *)
let decide_blocking ch = Lwt_unix.set_blocking ~set_flags:false ch true

(* [None] also if the descriptor is not open: Lwt_unix knows how to fail. *)
let handle ch =
  match Lwt_unix.state ch with
  | Closed | Aborted _ -> None
  | Opened -> (
      match known ch with
      | Some { handle; _ } -> handle
      | None -> (
          let fd = Lwt_unix.unix_file_descr ch in
          let file = Descriptor.is_file fd in
          if not (file || Descriptor.is_open fd) then None
          else begin
            if file then decide_blocking ch;
            let handle = if file then Some (Handle.create fd) else None in
            (* A finaliser may have been faster. *)
            match known ch with
            | Some { handle; _ } -> handle
            | None ->
                remember ch handle;
                handle
          end))

(* ---- Opening and closing -------------------------------------------------------------------- *)

let openfile path flags perm =
  Descriptor.openat path ~flags:(Operation.open_flags flags) perm (fun fd ->
      if not (List.mem O_CLOEXEC flags) then Unix.clear_close_on_exec fd;
      if Descriptor.is_file fd then begin
        let ch = Lwt_unix.of_unix_file_descr ~blocking:true ~set_flags:false fd in
        remember ch (Some (Handle.create fd));
        ch
      end
      else Lwt_unix.of_unix_file_descr fd)

(* The state of a file that is closed as soon as its operations have ended. Lwt_unix raises the same
   exception for a closed one. *)
let closing = Unix.Unix_error (EBADF, "check_descriptor", "")

let state ch = match Lwt_unix.state ch with Aborted exn when exn == closing -> Closed | s -> s

let close ch =
  if state ch = Closed then Lwt_unix.check_descriptor ch;
  let entry = known ch in
  forget ch;
  match entry with
  | Some { handle = Some handle; _ } when not (Handle.is_idle handle) ->
      Lwt_unix.abort ch closing;
      Lwt.bind (Handle.shut handle) (fun () ->
          (* Somebody may have called Lwt_unix.close itself. *)
          if Lwt_unix.state ch = Closed then Lwt.return_unit else Lwt_unix.close ch)
  | _ -> Lwt_unix.close ch

let dup2 ?cloexec ch1 ch2 =
  forget ch2;
  Lwt_unix.dup2 ?cloexec ch1 ch2

(* ---- Transfers ------------------------------------------------------------------------------ *)

let check where length pos len =
  if pos < 0 || len < 0 || pos > length - len then invalid_arg where

let read ch buf pos len =
  match handle ch with
  | None -> Lwt_unix.read ch buf pos len
  | Some handle ->
      check "Lwt_unix.read" (Bytes.length buf) pos len;
      Handle.read handle ~name:"read" ~exact:false (Bytes buf) pos len
        ~pos:Operation.current_position

let write ch buf pos len =
  match handle ch with
  | None -> Lwt_unix.write ch buf pos len
  | Some handle ->
      check "Lwt_unix.write" (Bytes.length buf) pos len;
      Handle.write handle ~name:"write" ~exact:false (Bytes buf) pos len
        ~pos:Operation.current_position

let pread ch buf ~file_offset pos len =
  match handle ch with
  | None -> Lwt_unix.pread ch buf ~file_offset pos len
  | Some handle ->
      check "Lwt_unix.pread" (Bytes.length buf) pos len;
      if file_offset < 0 then Lwt.fail (Unix.Unix_error (EINVAL, "pread", ""))
      else Handle.read handle ~name:"pread" ~exact:false (Bytes buf) pos len ~pos:file_offset

let pwrite ch buf ~file_offset pos len =
  match handle ch with
  | None -> Lwt_unix.pwrite ch buf ~file_offset pos len
  | Some handle ->
      check "Lwt_unix.pwrite" (Bytes.length buf) pos len;
      if file_offset < 0 then Lwt.fail (Unix.Unix_error (EINVAL, "pwrite", ""))
      else Handle.write handle ~name:"pwrite" ~exact:false (Bytes buf) pos len ~pos:file_offset

let write_string ch s pos len = write ch (Bytes.unsafe_of_string s) pos len

let pwrite_string ch s ~file_offset pos len =
  pwrite ch (Bytes.unsafe_of_string s) ~file_offset pos len

let read_bigarray where ch buf pos len =
  match handle ch with
  | None -> (Lwt_unix.read_bigarray [@ocaml.alert "-deprecated"]) where ch buf pos len
  | Some handle ->
      check where (Buffer.length buf) pos len;
      Handle.read handle ~name:"read" ~exact:false (Bigarray buf) pos len
        ~pos:Operation.current_position

let write_bigarray where ch buf pos len =
  match handle ch with
  | None -> (Lwt_unix.write_bigarray [@ocaml.alert "-deprecated"]) where ch buf pos len
  | Some handle ->
      check where (Buffer.length buf) pos len;
      Handle.write handle ~name:"write" ~exact:false (Bigarray buf) pos len
        ~pos:Operation.current_position

(* ---- Other operations on descriptors -------------------------------------------------------- *)

let lseek ch offset whence =
  match handle ch with
  | None -> Lwt_unix.lseek ch offset whence
  | Some handle ->
      Lwt.bind (Handle.seek handle (Int64.of_int offset) whence) (Handle.small "lseek")

let truncate_to lwt_truncate ch length small =
  match handle ch with
  | None -> lwt_truncate ch length
  | Some _ when small < 0 -> Lwt.fail (Unix.Unix_error (EINVAL, "ftruncate", ""))
  | Some handle ->
      Handle.run handle "ftruncate"
        ~on_end:(fun () -> Handle.note_written handle)
        (Operation.ftruncate (Handle.descriptor handle) small)
        ignore

let ftruncate ch length = truncate_to Lwt_unix.ftruncate ch length length

let sync name ~full lwt_sync ch =
  match handle ch with
  | None -> lwt_sync ch
  | Some handle -> Handle.sync handle name ~full

let fsync ch = sync "fsync" ~full:true Lwt_unix.fsync ch
let fdatasync ch = sync "fdatasync" ~full:false Lwt_unix.fdatasync ch

let stat_of decode lwt_fstat ch =
  match handle ch with
  | None -> lwt_fstat ch
  | Some handle -> Handle.stat handle decode

let fstat ch = stat_of Stat.stats Lwt_unix.fstat ch

(* ---- Paths ---------------------------------------------------------------------------------- *)

let stat = Path.stat
let lstat = Path.lstat
let file_exists = Path.exists
let rename = Path.rename
let unlink = Path.unlink
let link = Path.link
let symlink ?to_dir:_ target path = Path.symlink target path
let mkdir = Path.mkdir
let rmdir = Path.rmdir

module LargeFile = struct
  include Lwt_unix.LargeFile

  let lseek ch offset whence =
    match handle ch with
    | None -> Lwt_unix.LargeFile.lseek ch offset whence
    | Some handle -> Handle.seek handle offset whence

  (* No file is longer than an int can tell, and all negative lengths are the same error. *)
  let ftruncate ch length =
    truncate_to Lwt_unix.LargeFile.ftruncate ch length
      (Int64.to_int (Int64.max (-1L) (Int64.min length (Int64.of_int max_int))))

  let stat = Path.large_stat
  let lstat = Path.large_lstat
  let fstat ch = stat_of Stat.large Lwt_unix.LargeFile.fstat ch
  let file_exists = Path.exists
end
