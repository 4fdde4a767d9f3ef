(* Ringway_lwt.Unix against Lwt_unix: the same calls, one at a time, give the same results and
   exceptions. They are a table of calls. What the two do differently on purpose
   (files_unix.mli) is not here, except paths with a NUL byte, which are compared with Unix. *)

module type UNIX = module type of struct
  include Lwt_unix
end

module Ours : UNIX = struct
  include Ringway_lwt.Unix
  module LargeFile = Lwt_unix.LargeFile
end

module Large = Ringway_lwt.Unix.LargeFile

(* A program that has moved over keeps its types. *)
module Moved (Lwt_unix : UNIX) = struct
  let first_line path =
    let open Lwt.Syntax in
    let* fd = Lwt_unix.openfile path [ Lwt_unix.O_RDONLY ] 0 in
    let channel = Lwt_io.of_fd ~mode:Lwt_io.input fd in
    let* line = Lwt_io.read_line channel in
    let* () = Lwt_io.close channel in
    Lwt.return line
end

let file name = Filename.concat Way.directory name

let write_file name text =
  let channel = open_out_bin name in
  output_string channel text;
  close_out channel

(* What a call gives, in words. Raising at once and failing are told apart. *)
let outcome f =
  match f () with
  | exception exn -> Lwt.return ("raises " ^ Printexc.to_string exn)
  | promise ->
      Lwt.catch
        (fun () -> promise)
        (fun exn -> Lwt.return ("fails with " ^ Printexc.to_string exn))

let unit p = Lwt.map (fun () -> "()") p
let int p = Lwt.map string_of_int p
let bool p = Lwt.map string_of_bool p

let kind = function
  | Unix.S_REG -> "file"
  | S_DIR -> "directory"
  | S_CHR -> "character device"
  | S_BLK -> "block device"
  | S_LNK -> "link"
  | S_FIFO -> "fifo"
  | S_SOCK -> "socket"

(* Times and inode numbers differ between two directories. *)
let stats p =
  Lwt.map
    (fun (s : Unix.stats) ->
      Printf.sprintf "%s %o nlink %d uid %d gid %d size %d dev %d" (kind s.st_kind) s.st_perm
        s.st_nlink s.st_uid s.st_gid
        (if s.st_kind = S_DIR then 0 else s.st_size)
        s.st_dev)
    p

let large_stats p =
  Lwt.map
    (fun (s : Unix.LargeFile.stats) -> Printf.sprintf "%s %Ld" (kind s.st_kind) s.st_size)
    p

type calls = (module UNIX)

let lwt_unix : calls = (module Lwt_unix)
let ours : calls = (module Ours)

(* One row: a name, and the call. It prepares and cleans up the files below [dir] itself. *)
let descriptor_rows =
  let row name f = (name, f) in
  let with_fd flags f (module U : UNIX) dir =
    let open Lwt.Syntax in
    let path = Filename.concat dir "data" in
    write_file path "0123456789";
    let* fd = U.openfile path flags 0o600 in
    let* result = outcome (fun () -> f (module U : UNIX) fd) in
    let* position = outcome (fun () -> int (U.lseek fd 0 SEEK_CUR)) in
    let* closed = outcome (fun () -> unit (U.close fd)) in
    let contents = Way.read_file path in
    Lwt.return (String.concat "; " [ result; position; closed; contents ])
  in
  let on_directory f (module U : UNIX) dir =
    let open Lwt.Syntax in
    let* fd = U.openfile dir [ O_RDONLY ] 0 in
    let* result = outcome (fun () -> f (module U : UNIX) fd) in
    let* closed = outcome (fun () -> unit (U.close fd)) in
    Lwt.return (result ^ "; " ^ closed)
  in
  let on_closed f (module U : UNIX) dir =
    let open Lwt.Syntax in
    let path = Filename.concat dir "data" in
    write_file path "0123456789";
    let* fd = U.openfile path [ O_RDWR ] 0 in
    (* Otherwise Lwt_unix does so after the close, with whatever file has the number then. *)
    let* _ = U.blocking fd in
    let* () = U.close fd in
    outcome (fun () -> f (module U : UNIX) fd)
  in
  let on_aborted f (module U : UNIX) dir =
    let open Lwt.Syntax in
    let path = Filename.concat dir "data" in
    write_file path "0123456789";
    let* fd = U.openfile path [ O_RDWR ] 0 in
    U.abort fd Exit;
    let* result = outcome (fun () -> f (module U : UNIX) fd) in
    let* closed = outcome (fun () -> unit (U.close fd)) in
    Lwt.return (result ^ "; " ^ closed)
  in
  let b = Bytes.make 20 'b' in
  let calls =
    [
      ("read", fun (module U : UNIX) fd -> int (U.read fd b 0 4));
      ("read 0", fun (module U : UNIX) fd -> int (U.read fd b 0 0));
      ("read at the end", fun (module U : UNIX) fd -> int (U.read fd b 0 20));
      ("read out of bounds", fun (module U : UNIX) fd -> int (U.read fd b 18 4));
      ("read negative", fun (module U : UNIX) fd -> int (U.read fd b 0 (-1)));
      ("pread", fun (module U : UNIX) fd -> int (U.pread fd b ~file_offset:3 1 4));
      ("pread past the end", fun (module U : UNIX) fd -> int (U.pread fd b ~file_offset:30 1 4));
      ("pread -1", fun (module U : UNIX) fd -> int (U.pread fd b ~file_offset:(-1) 0 4));
      ("pread -2", fun (module U : UNIX) fd -> int (U.pread fd b ~file_offset:(-2) 0 4));
      ("pread out of bounds", fun (module U : UNIX) fd -> int (U.pread fd b ~file_offset:0 0 21));
      ("write", fun (module U : UNIX) fd -> int (U.write fd b 0 4));
      ("write out of bounds", fun (module U : UNIX) fd -> int (U.write fd b 0 21));
      ("write_string", fun (module U : UNIX) fd -> int (U.write_string fd "abc" 1 2));
      ("write_string out of bounds", fun (module U : UNIX) fd -> int (U.write_string fd "a" 1 2));
      ("pwrite", fun (module U : UNIX) fd -> int (U.pwrite fd b ~file_offset:3 1 4));
      ("pwrite -1", fun (module U : UNIX) fd -> int (U.pwrite fd b ~file_offset:(-1) 1 4));
      ("pwrite out of bounds", fun (module U : UNIX) fd -> int (U.pwrite fd b ~file_offset:3 18 4));
      ( "pwrite_string",
        fun (module U : UNIX) fd -> int (U.pwrite_string fd "xy" ~file_offset:8 0 2) );
      ("lseek", fun (module U : UNIX) fd -> int (U.lseek fd 5 SEEK_SET));
      ("lseek to the end", fun (module U : UNIX) fd -> int (U.lseek fd (-2) SEEK_END));
      ("lseek -1", fun (module U : UNIX) fd -> int (U.lseek fd (-1) SEEK_SET));
      ("ftruncate", fun (module U : UNIX) fd -> unit (U.ftruncate fd 3));
      ("ftruncate up", fun (module U : UNIX) fd -> unit (U.ftruncate fd 12));
      ("ftruncate -1", fun (module U : UNIX) fd -> unit (U.ftruncate fd (-1)));
      ("fsync", fun (module U : UNIX) fd -> unit (U.fsync fd));
      ("fdatasync", fun (module U : UNIX) fd -> unit (U.fdatasync fd));
      ("fstat", fun (module U : UNIX) fd -> stats (U.fstat fd));
      ("close", fun (module U : UNIX) fd -> unit (U.close fd));
    ]
  in
  List.concat_map
    (fun (name, call) ->
      [
        row (name ^ ", reading") (with_fd [ O_RDONLY ] call);
        row (name ^ ", writing") (with_fd [ O_WRONLY ] call);
        row (name ^ ", both") (with_fd [ O_RDWR ] call);
        row (name ^ ", appending") (with_fd [ O_RDWR; O_APPEND ] call);
        (* There Lwt_unix returns a position that an int cannot tell as a negative number. *)
        row
          (name ^ " of a directory")
          (if name = "lseek to the end" then fun _ _ -> Lwt.return "" else on_directory call);
        row (name ^ " after close") (on_closed call);
        row (name ^ " after abort") (on_aborted call);
      ])
    calls

let path_rows =
  let long = String.make 300 'x' in
  let beside path = Filename.concat (Filename.dirname path) "new" in
  let calls =
    [
      ("stat", fun (module U : UNIX) p -> stats (U.stat p));
      ("lstat", fun (module U : UNIX) p -> stats (U.lstat p));
      ("file_exists", fun (module U : UNIX) p -> bool (U.file_exists p));
      ("unlink", fun (module U : UNIX) p -> unit (U.unlink p));
      ("rmdir", fun (module U : UNIX) p -> unit (U.rmdir p));
      ("mkdir", fun (module U : UNIX) p -> unit (U.mkdir p 0o751));
      ("rename", fun (module U : UNIX) p -> unit (U.rename p (beside p)));
      ("link", fun (module U : UNIX) p -> unit (U.link p (beside p)));
      ("symlink", fun (module U : UNIX) p -> unit (U.symlink "target" p));
      ( "open",
        fun (module U : UNIX) p ->
          let open Lwt.Syntax in
          let* fd = U.openfile p [ O_RDWR ] 0o7777 in
          unit (U.close fd) );
      ( "open to create",
        fun (module U : UNIX) p ->
          let open Lwt.Syntax in
          let* fd = U.openfile p [ O_RDWR; O_CREAT; O_EXCL ] 0o640 in
          let* s = stats (U.fstat fd) in
          let* () = U.close fd in
          Lwt.return s );
    ]
  in
  (* Each path below a directory with these files. *)
  let paths =
    [
      "file"; "missing"; "dir"; "full"; "link"; "dangling"; "loop"; "file/below"; "missing/below";
      "fifo/"; "";
      long;
    ]
  in
  List.concat_map
    (fun (name, call) ->
      List.map
        (fun path ->
          ( Printf.sprintf "%s %s" name (if path = long then "a long name" else path),
            fun (module U : UNIX) dir ->
              let at name = Filename.concat dir name in
              write_file (at "file") "contents";
              Unix.mkdir (at "dir") 0o700;
              Unix.mkdir (at "full") 0o700;
              write_file (at "full/file") "";
              Unix.symlink "file" (at "link");
              Unix.symlink "nowhere" (at "dangling");
              Unix.symlink "loop" (at "loop");
              Unix.mkfifo (at "fifo") 0o600;
              outcome (fun () -> call (module U : UNIX) (if path = "" then "" else at path)) ))
        paths)
    calls

(* The same directory for both, so that messages with paths agree. *)
let in_fresh_directory f =
  let dir = file "case" in
  Unix.mkdir dir 0o755;
  Lwt.finalize (fun () -> f dir) (fun () ->
      Way.remove dir;
      Lwt.return_unit)

let compare_row (name, call) =
  let open Lwt.Syntax in
  let* expected = in_fresh_directory (call lwt_unix) in
  let* got = in_fresh_directory (call ours) in
  Alcotest.(check string) name expected got;
  Lwt.return_unit

let table rows = Way.lwt (fun () -> Lwt_list.iter_s compare_row rows)

let nul_paths () =
  let path = "a\000b" in
  Lwt_list.iter_s
    (fun (name, ours, unix) ->
      let expected =
        match unix path with
        | () -> "()"
        | exception exn -> "fails with " ^ Printexc.to_string exn
      in
      Lwt.map (Alcotest.(check string) name expected) (outcome (fun () -> unit (ours path))))
    [
      ("stat", (fun p -> Lwt.map ignore (Ours.stat p)), fun p -> ignore (Unix.stat p));
      ("lstat", (fun p -> Lwt.map ignore (Ours.lstat p)), fun p -> ignore (Unix.lstat p));
      ( "openfile",
        (fun p -> Lwt.map ignore (Ours.openfile p [ O_RDONLY ] 0)),
        fun p -> ignore (Unix.openfile p [ O_RDONLY ] 0) );
      ("unlink", Ours.unlink, Unix.unlink);
      ("mkdir", (fun p -> Ours.mkdir p 0o700), fun p -> Unix.mkdir p 0o700);
      ("rmdir", Ours.rmdir, Unix.rmdir);
      ("rename", (fun p -> Ours.rename p "b"), fun p -> Unix.rename p "b");
      ("link", (fun p -> Ours.link p "b"), fun p -> Unix.link p "b");
    ]

let denied () =
  if Unix.geteuid () <> 0 then Way.skip "only root can become another user"
  else begin
    let dir = file "denied" in
    Unix.mkdir dir 0o755;
    Unix.mkdir (Filename.concat dir "secret") 0o700;
    write_file (Filename.concat dir "file") "";
    Unix.chmod (Filename.concat dir "file") 0o600;
    let at name = Filename.concat dir name in
    let calls (module U : UNIX) =
      Lwt_list.map_s outcome
        [
          (fun () -> unit (Lwt.map ignore (U.openfile (at "file") [ O_RDONLY ] 0)));
          (fun () -> unit (Lwt.map ignore (U.openfile (at "new") [ O_WRONLY; O_CREAT ] 0o600)));
          (fun () -> stats (U.stat (at "secret/x")));
          (fun () -> unit (U.unlink (at "file")));
          (fun () -> unit (U.mkdir (at "new") 0o700));
          (fun () -> unit (U.rename (at "file") (at "new")));
        ]
    in
    Limits.in_child (fun () ->
        Unix.setuid 65534;
        let expected = Lwt_main.run (calls lwt_unix) in
        let got = Lwt_main.run (calls ours) in
        if List.mem "()" got then failwith "not refused";
        if expected <> got then
          failwith (String.concat "\n" (("expected" :: expected) @ ("got" :: got))))
  end

let close_on_exec () =
  let open Lwt.Syntax in
  let path = file "cloexec" in
  write_file path "";
  let flags fd =
    let info =
      Way.read_file
        (Printf.sprintf "/proc/self/fdinfo/%d" (Way.number (Lwt_unix.unix_file_descr fd)))
    in
    List.find
      (fun line -> String.length line > 6 && String.sub line 0 6 = "flags:")
      (String.split_on_char '\n' info)
  in
  let calls (module U : UNIX) =
    Lwt_list.map_s
      (fun flag ->
        let* fd = U.openfile path (Unix.O_RDONLY :: flag) 0 in
        let flags = flags fd in
        let* () = U.close fd in
        Lwt.return flags)
      [ []; [ Unix.O_CLOEXEC ]; [ Unix.O_KEEPEXEC ] ]
  in
  let* expected = calls lwt_unix in
  let* got = calls ours in
  Alcotest.(check (list string)) "flags" expected got;
  Lwt.return_unit

(* The number of a closed descriptor becomes that of another file: nothing of the first may be
   applied to it. *)
let reused_numbers () =
  let open Lwt.Syntax in
  let path = file "reused" in
  write_file path "file";
  let b = Bytes.create 4 in
  let* closed = Lwt_unix.openfile path [ O_RDONLY ] 0 in
  let* _ = Lwt_unix.read closed b 0 4 in
  let* () = Lwt_unix.close closed in
  let* expected = outcome (fun () -> int (Lwt_unix.read closed b 0 4)) in
  let rec go n =
    if n = 0 then Lwt.return_unit
    else
      let* fd = Ours.openfile path [ O_RDONLY ] 0 in
      let* count = Ours.read fd b 0 4 in
      Alcotest.(check int) "file" 4 count;
      let* () = Ours.close fd in
      let r, w = Ours.pipe () in
      if n = 1 then
        Alcotest.(check bool)
          "the number is used again" true
          (Ours.unix_file_descr r = Ours.unix_file_descr fd);
      let reading = Ours.read r b 0 4 in
      let* after = outcome (fun () -> int (Ours.read fd b 0 4)) in
      Alcotest.(check string) "closed" expected after;
      let* _ = Ours.write_string w "pipe" 0 4 in
      let* count = reading in
      Alcotest.(check string) "pipe" "pipe" (Bytes.sub_string b 0 count);
      let* () = Ours.close r in
      let* () = Ours.close w in
      go (n - 1)
  in
  go 3

let closed_in_flight () =
  let open Lwt.Syntax in
  let path = file "in flight" in
  let* fd = Ours.openfile path [ O_RDWR; O_CREAT ] 0o600 in
  let writes =
    List.init 50 (fun i ->
        Ours.pwrite_string fd (String.make 1000 'w') ~file_offset:(i * 1000) 0 1000)
  in
  let closing = Ours.close fd in
  Alcotest.(check bool) "closed at once" true (Ours.state fd = Lwt_unix.Closed);
  let* again = outcome (fun () -> unit (Ours.close fd)) in
  Alcotest.(check string)
    "a second time" "raises Unix.Unix_error(Unix.EBADF, \"check_descriptor\", \"\")" again;
  (* Gets other numbers while the writes are in flight. *)
  let* others =
    Lwt_list.map_p
      (fun i -> Ours.openfile (file (Printf.sprintf "other %d" i)) [ O_RDWR; O_CREAT ] 0o600)
      (List.init 10 Fun.id)
  in
  let* counts = Lwt.all writes in
  Alcotest.(check int) "all written" 50_000 (List.fold_left ( + ) 0 counts);
  let* () = closing in
  Alcotest.(check bool) "closed" true (Lwt_unix.state fd = Lwt_unix.Closed);
  Alcotest.(check int) "size" 50_000 (Unix.stat path).st_size;
  Lwt_list.iter_s
    (fun other ->
      let* stat = Ours.fstat other in
      Alcotest.(check int) "untouched" 0 stat.st_size;
      Ours.close other)
    others

let replaced_by_dup2 () =
  let open Lwt.Syntax in
  let path = file "dup2" in
  write_file path "file";
  let b = Bytes.create 4 in
  let* fd = Ours.openfile path [ O_RDONLY ] 0 in
  let* _ = Ours.read fd b 0 1 in
  let r, w = Ours.pipe () in
  Ours.dup2 r fd;
  let reading = Ours.read fd b 0 4 in
  let* _ = Ours.write_string w "pipe" 0 4 in
  let* count = reading in
  Alcotest.(check string) "pipe" "pipe" (Bytes.sub_string b 0 count);
  let* pread = outcome (fun () -> int (Ours.pread fd b ~file_offset:0 0 4)) in
  let* expected = outcome (fun () -> int (Lwt_unix.pread r b ~file_offset:0 0 4)) in
  Alcotest.(check string) "no file" expected pread;
  Lwt_list.iter_s Ours.close [ fd; r; w ]

let large_file () =
  let open Lwt.Syntax in
  let path = file "large" in
  let size = 5_000_000_000L in
  let* fd = Ours.openfile path [ O_RDWR; O_CREAT ] 0o600 in
  let* () = Large.ftruncate fd size in
  let* position = Large.lseek fd (-1L) SEEK_END in
  Alcotest.(check int64) "position" (Int64.pred size) position;
  let* by_fd = large_stats (Large.fstat fd) in
  let* by_path = large_stats (Large.stat path) in
  Alcotest.(check (list string)) "stat" [ "file 5000000000"; "file 5000000000" ] [ by_fd; by_path ];
  let* negative = outcome (fun () -> unit (Large.ftruncate fd Int64.min_int)) in
  let* expected = outcome (fun () -> unit (Lwt_unix.LargeFile.ftruncate fd Int64.min_int)) in
  Alcotest.(check string) "negative" expected negative;
  Ours.close fd

let moved () =
  let open Lwt.Syntax in
  let path = file "moved" in
  write_file path "one\ntwo\n";
  let module M = Moved (Ours) in
  let* line = M.first_line path in
  Alcotest.(check string) "line" "one" line;
  Lwt.return_unit

let () =
  Way.run "unix"
    [
      ("calls on descriptors", table descriptor_rows);
      ("calls on paths", table path_rows);
      ("paths with a NUL byte", Way.lwt nul_paths);
      ("permission denied", denied);
      ("close-on-exec", Way.lwt close_on_exec);
      ("a number is used again", Way.lwt reused_numbers);
      ("closed in flight", Way.lwt closed_in_flight);
      ("replaced by dup2", Way.lwt replaced_by_dup2);
      ("a large file", Way.lwt large_file);
      ("a program that moved over", Way.lwt moved);
    ]
