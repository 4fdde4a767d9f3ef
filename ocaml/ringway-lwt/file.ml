open Ringway

type t = Handle.t

let error code name = Lwt.fail (Unix.Unix_error (code, name, ""))

let openfile ?(direct = false) ?dont_cache path flags perm =
  let flags = Operation.open_flags flags lor if direct then Operation.o_direct else 0 in
  Descriptor.openat path ~flags perm (Handle.create ?dont_cache ~alone:true)

let of_unix_file_descr fd = Handle.create fd

let open_descriptor t =
  if Handle.is_closed t then raise (Unix.Unix_error (EBADF, "unix_file_descr", ""));
  Handle.descriptor t

let unix_file_descr t =
  let fd = open_descriptor t in
  Handle.share t;
  fd

let close t =
  if Handle.is_closed t then error EBADF "close"
  else
    Lwt.no_cancel
      (Lwt.bind (Handle.shut t) (fun () -> Descriptor.close (Handle.descriptor t)))

let with_file ?direct ?dont_cache path flags perm f =
  Lwt.bind (openfile ?direct ?dont_cache path flags perm) (fun t ->
      Lwt.try_bind
        (fun () -> f t)
        (fun value -> Lwt.map (fun () -> value) (close t))
        (fun exn ->
          Lwt.bind
            (Lwt.catch (fun () -> close t) (fun _ -> Lwt.return_unit))
            (fun () -> Lwt.fail exn)))

(* ---- Transfers ------------------------------------------------------------------------------ *)

let length = function
  | Handle.Bigarray buffer -> Buffer.length buffer
  | Handle.Bytes bytes -> Bytes.length bytes

let check where memory off len =
  if off < 0 || len < 0 || off > length memory - len then invalid_arg ("Ringway_lwt.File." ^ where)

(* [pos] is an offset of the program: -1 is not the current position. *)
let at transfer name ~exact t memory ~pos off len =
  if Handle.is_closed t then error EBADF name
  else if pos < 0 then error EINVAL name
  else if not (Handle.is_seekable t) then error ESPIPE name
  else transfer t ~name ~exact memory off len ~pos

let at_position transfer name ~exact t memory off len =
  if Handle.is_closed t then error EBADF name
  else transfer t ~name ~exact memory off len ~pos:Operation.current_position

let pread_memory where t memory ~pos off len =
  check where memory off len;
  at Handle.read "pread" ~exact:false t memory ~pos off len

let pwrite_memory where t memory ~pos off len =
  check where memory off len;
  at Handle.write "pwrite" ~exact:false t memory ~pos off len

let read_memory where t memory off len =
  check where memory off len;
  at_position Handle.read "read" ~exact:false t memory off len

let write_memory where t memory off len =
  check where memory off len;
  at_position Handle.write "write" ~exact:false t memory off len

let bytes bytes = Handle.Bytes bytes
let string s = Handle.Bytes (Bytes.unsafe_of_string s)
let pread t buffer = pread_memory "pread" t (Bigarray buffer)
let pwrite t buffer = pwrite_memory "pwrite" t (Bigarray buffer)
let read t buffer = read_memory "read" t (Bigarray buffer)
let write t buffer = write_memory "write" t (Bigarray buffer)
let pread_bytes t b = pread_memory "pread_bytes" t (bytes b)
let pwrite_bytes t b = pwrite_memory "pwrite_bytes" t (bytes b)
let pwrite_string t s = pwrite_memory "pwrite_string" t (string s)
let read_bytes t b = read_memory "read_bytes" t (bytes b)
let write_bytes t b = write_memory "write_bytes" t (bytes b)
let write_string t s = write_memory "write_string" t (string s)

let all len result =
  Lwt.bind result (fun n -> if n = len then Lwt.return_unit else Lwt.fail End_of_file)

(* A device that accepts no more bytes without an error. *)
let all_written name len result =
  Lwt.bind result (fun n -> if n = len then Lwt.return_unit else error ENOSPC name)

let pread_exactly_memory where t memory ~pos off len =
  check where memory off len;
  all len (at Handle.read "pread" ~exact:true t memory ~pos off len)

let pwrite_exactly_memory where t memory ~pos off len =
  check where memory off len;
  all_written "pwrite" len
    (at Handle.write "pwrite" ~exact:true t memory ~pos off len)

let read_exactly_memory where t memory off len =
  check where memory off len;
  all len (at_position Handle.read "read" ~exact:true t memory off len)

let write_exactly_memory where t memory off len =
  check where memory off len;
  all_written "write" len
    (at_position Handle.write "write" ~exact:true t memory off len)

let pread_exactly t buffer = pread_exactly_memory "pread_exactly" t (Bigarray buffer)
let pwrite_exactly t buffer = pwrite_exactly_memory "pwrite_exactly" t (Bigarray buffer)
let read_exactly t buffer = read_exactly_memory "read_exactly" t (Bigarray buffer)
let write_exactly t buffer = write_exactly_memory "write_exactly" t (Bigarray buffer)
let pread_exactly_bytes t b = pread_exactly_memory "pread_exactly_bytes" t (bytes b)
let pwrite_exactly_bytes t b = pwrite_exactly_memory "pwrite_exactly_bytes" t (bytes b)
let pwrite_exactly_string t s = pwrite_exactly_memory "pwrite_exactly_string" t (string s)
let read_exactly_bytes t b = read_exactly_memory "read_exactly_bytes" t (bytes b)
let write_exactly_bytes t b = write_exactly_memory "write_exactly_bytes" t (bytes b)
let write_exactly_string t s = write_exactly_memory "write_exactly_string" t (string s)

(* ---- Many ranges ---------------------------------------------------------------------------- *)

type range = { pos : int; buffer : Buffer.t; off : int; len : int }

let read_ranges t ranges =
  Array.iter
    (fun { buffer; off; len; _ } -> check "read_ranges" (Handle.Bigarray buffer) off len)
    ranges;
  if Handle.is_closed t then error EBADF "pread"
  else begin
    let results = Array.make (Array.length ranges) (Ok 0) in
    let read i { pos; buffer; off; len } =
      Lwt.try_bind
        (fun () -> at Handle.read "pread" ~exact:true t (Bigarray buffer) ~pos off len)
        (fun n ->
          results.(i) <- Ok n;
          Lwt.return_unit)
        (function
          | Lwt.Canceled -> Lwt.fail Lwt.Canceled
          | exn ->
              results.(i) <- Error exn;
              Lwt.return_unit)
    in
    let reads = Array.to_list (Array.mapi read ranges) in
    Lwt.map (fun () -> results) (Lwt.join reads)
  end

(* ---- Other operations ----------------------------------------------------------------------- *)

(* [operation] may raise Invalid_argument for a negative number. *)
let run ?on_end name t operation finish =
  if Handle.is_closed t then error EBADF name
  else
    match operation (Handle.descriptor t) with
    | exception Invalid_argument _ -> error EINVAL name
    | operation -> Handle.run t ?on_end name operation finish

let lseek t offset whence =
  if Handle.is_closed t then error EBADF "lseek"
  else Lwt.bind (Handle.seek t (Int64.of_int offset) whence) (Handle.small "lseek")

let stat t = if Handle.is_closed t then error EBADF "fstat" else Handle.stat t Stat.stats

let sync name t ~full =
  if Handle.is_closed t then error EBADF name else Handle.sync t name ~full

let fsync t = sync "fsync" t ~full:true
let fdatasync t = sync "fdatasync" t ~full:false

(* Operations that change the time of the last modification. *)
let change name t operation =
  run ~on_end:(fun () -> Handle.note_written t) name t operation ignore

let truncate t length = change "ftruncate" t (fun fd -> Operation.ftruncate fd length)

let allocate t ~pos ~len =
  change "fallocate" t (fun fd -> Operation.fallocate fd ~mode:0 ~off:pos ~len)

type advice = Normal | Random | Sequential | Will_need | Dont_need | No_reuse

(* POSIX_FADV_*, the same on all Linux systems that ringway supports. *)
let advice_number = function
  | Normal -> 0
  | Random -> 1
  | Sequential -> 2
  | Will_need -> 3
  | Dont_need -> 4
  | No_reuse -> 5

let advise t ~pos ~len advice =
  run "posix_fadvise" t
    (fun fd -> Operation.fadvise fd ~off:pos ~len ~advice:(advice_number advice))
    ignore

let direct_alignment t = Direct_io.get (open_descriptor t)
