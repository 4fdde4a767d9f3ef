open Ringway

type t = Seekable of Unix.file_descr | Stream of Lwt_unix.file_descr

let openat ?(on_unwanted = Unix.close) path ~flags perm finish =
  (* openat2(2) refuses more than permissions. *)
  match Operation.openat path ~flags ~perm:(perm land 0o7777) with
  | exception Invalid_argument _ -> Lwt.fail (Unix.Unix_error (Unix.ENOENT, "open", path))
  | operation ->
      Promise.run "open" path operation
        (fun result -> finish (Operation.descriptor_of_result result))
        ~on_unwanted:(fun result -> on_unwanted (Operation.descriptor_of_result result))

let openfile path flags perm =
  openat path ~flags:(Operation.open_flags flags) perm (fun fd ->
      match (Unix.LargeFile.fstat fd).st_kind with
      | S_REG | S_BLK | S_DIR | S_LNK -> Seekable fd
      | S_CHR | S_FIFO | S_SOCK -> Stream (Lwt_unix.of_unix_file_descr fd))

let close fd = Lwt.no_cancel (Promise.run "close" "" (Operation.close fd) ignore)
