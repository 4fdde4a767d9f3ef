open Ringway

type t = Seekable of Unix.file_descr | Stream of Lwt_unix.file_descr

let openfile path flags perm =
  (* openat2(2) refuses more than permissions. *)
  let perm = perm land 0o7777 in
  match Operation.openat path ~flags:(Operation.open_flags flags) ~perm with
  | exception Invalid_argument _ -> Lwt.fail (Unix.Unix_error (Unix.ENOENT, "open", path))
  | operation ->
      Lwt.map
        (fun fd ->
          match (Unix.LargeFile.fstat fd).st_kind with
          | S_REG | S_BLK | S_DIR | S_LNK -> Seekable fd
          | S_CHR | S_FIFO | S_SOCK -> Stream (Lwt_unix.of_unix_file_descr fd))
        (Promise.run "open" path operation Operation.descriptor_of_result
           ~on_unwanted:(fun result -> Unix.close (Operation.descriptor_of_result result)))

let close fd = Lwt.no_cancel (Promise.run "close" "" (Operation.close fd) ignore)
