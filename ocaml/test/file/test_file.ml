(* File: results and errors of each function, the current position, closing with operations in
   flight, many ranges, direct I/O. Path is compared with Lwt_unix in test_unix.ml. *)

module System = Unix
open Ringway
open Ringway_lwt
module Unix = System
open Lwt.Syntax

let path name = Filename.concat Way.directory name

let write_file name text =
  let channel = open_out_bin (path name) in
  output_string channel text;
  close_out channel

let outcome p =
  Lwt.try_bind
    (fun () -> p)
    (fun _ -> Lwt.return "ok")
    (function Lwt.Canceled -> Lwt.return "canceled" | exn -> Lwt.return (Printexc.to_string exn))

let fails expected p =
  let* got = outcome p in
  Alcotest.(check string) "error" expected got;
  Lwt.return_unit

let unix_error code name argument = Printexc.to_string (Unix.Unix_error (code, name, argument))
let text buffer off len = Buffer.to_string (Buffer.sub buffer off len)
let unit p = Lwt.map ignore p

let with_text name text f =
  write_file name text;
  File.with_file (path name) [ O_RDWR ] 0 f

(* Page_cache must not have the data: the budget of this iteration is spent. *)
let without_cache () =
  let dispatcher = Dispatcher.current () in
  while Dispatcher.spend dispatcher 1024 do
    ()
  done;
  while Dispatcher.spend dispatcher 1 do
    ()
  done

(* The first read after a write changes the access time, which needs the queue; and later than the
   write, by a tick of the kernel's clock. *)
let settle file =
  let* () = Lwt_unix.sleep 0.02 in
  let* (_ : int) = File.pread_bytes file (Bytes.create 1) ~pos:0 0 1 in
  Lwt_unix.sleep 0.02

(* Each case of reading runs twice: from the page cache and through the queue. *)
let both_ways f () =
  let* () = f ignore in
  f without_cache

(* ---- Transfers ------------------------------------------------------------------------------ *)

let reading prepare =
  with_text "reading" "0123456789" (fun file ->
      let buffer = Buffer.of_string "abcdef" and bytes = Bytes.of_string "abcdef" in
      let* () = settle file in
      prepare ();
      let* n = File.pread file buffer ~pos:2 1 3 in
      Alcotest.(check (pair int string)) "pread" (3, "a234ef") (n, Buffer.to_string buffer);
      prepare ();
      let* n = File.pread_bytes file bytes ~pos:2 1 3 in
      Alcotest.(check (pair int string)) "pread_bytes" (3, "a234ef") (n, Bytes.to_string bytes);
      prepare ();
      let* n = File.pread file buffer ~pos:8 0 6 in
      Alcotest.(check (pair int string)) "short" (2, "89") (n, text buffer 0 2);
      prepare ();
      let* n = File.pread_bytes file bytes ~pos:10 0 6 in
      Alcotest.(check (pair int string)) "at the end" (0, "a234ef") (n, Bytes.to_string bytes);
      prepare ();
      let* n = File.read file buffer 0 4 in
      prepare ();
      let* m = File.read_bytes file bytes 0 4 in
      Alcotest.(check (pair int string)) "read" (4, "0123") (n, text buffer 0 4);
      Alcotest.(check (pair int string)) "goes on" (4, "4567") (m, Bytes.sub_string bytes 0 4);
      prepare ();
      let* () = File.pread_exactly file buffer ~pos:4 0 6 in
      Alcotest.(check string) "exactly" "456789" (Buffer.to_string buffer);
      prepare ();
      let* () = fails "End_of_file" (File.pread_exactly_bytes file bytes ~pos:5 0 6) in
      prepare ();
      let* () = fails "End_of_file" (File.read_exactly file buffer 0 3) in
      prepare ();
      let* position = File.lseek file 0 SEEK_CUR in
      Alcotest.(check int) "all were read" 10 position;
      Lwt.return_unit)

(* The kernel lets one thread at a time use the position of an open file: the loop would wait for
   others who have it. *)
let shared_position () =
  with_text "shared" "0123456789" (fun file ->
      let bytes = Bytes.create 4 in
      let* () = settle file in
      let at_once read =
        let reading = read () in
        let is_at_once = Lwt.state reading <> Lwt.Sleep in
        let* n = reading in
        Alcotest.(check int) "read" 2 n;
        Lwt.return is_at_once
      in
      let at_offset () = at_once (fun () -> File.pread_bytes file bytes ~pos:0 0 2) in
      let at_position () = at_once (fun () -> File.read_bytes file bytes 0 2) in
      let* cached = at_offset () in
      if not cached then Way.skip "this file system does not report what is cached";
      let* alone = at_position () in
      Alcotest.(check bool) "nobody else has it" cached alone;
      Limits.in_child ignore;
      let* forked = at_position () in
      Alcotest.(check bool) "after a fork" false forked;
      let* other = File.openfile (path "shared") [ O_RDONLY ] 0 in
      let read () = at_once (fun () -> File.read_bytes other bytes 0 2) in
      let* alone = read () in
      Alcotest.(check bool) "another one" cached alone;
      let fd = File.unix_file_descr other in
      let* shared = read () in
      Alcotest.(check bool) "its descriptor is known" false shared;
      let borrowed = File.of_unix_file_descr fd in
      let* shared = at_once (fun () -> File.read_bytes borrowed bytes 0 2) in
      Alcotest.(check bool) "others have it" false shared;
      let* cached_still = at_offset () in
      Alcotest.(check bool) "at an offset" cached cached_still;
      File.close other)

let writing () =
  with_text "writing" "" (fun file ->
      let contents () = Way.read_file (path "writing") in
      let buffer = Buffer.of_string "abcdef" and bytes = Bytes.of_string "ABCDEF" in
      let* n = File.write file buffer 1 3 in
      let* m = File.write_bytes file bytes 2 4 in
      let* k = File.write_string file "xyz" 0 1 in
      Alcotest.(check (list int)) "counts" [ 3; 4; 1 ] [ n; m; k ];
      Alcotest.(check string) "write" "bcdCDEFx" (contents ());
      let* n = File.pwrite file buffer ~pos:0 0 1 in
      let* m = File.pwrite_bytes file bytes ~pos:2 0 1 in
      let* k = File.pwrite_string file "yz" ~pos:9 0 2 in
      Alcotest.(check (list int)) "counts" [ 1; 1; 2 ] [ n; m; k ];
      Alcotest.(check string) "pwrite" "acACDEFx\000yz" (contents ());
      (* Bytes are copied by the call. *)
      let writing = File.pwrite_bytes file bytes ~pos:0 0 6 in
      Bytes.fill bytes 0 6 '-';
      let* _ = writing in
      Alcotest.(check string) "copied" "ABCDEFFx" (String.sub (contents ()) 0 8);
      let* () = File.write_exactly file buffer 0 6 in
      let* () = File.write_exactly_bytes file bytes 0 2 in
      let* () = File.write_exactly_string file "!" 0 1 in
      let* () = File.pwrite_exactly file buffer ~pos:0 0 1 in
      let* () = File.pwrite_exactly_bytes file bytes ~pos:1 0 1 in
      let* () = File.pwrite_exactly_string file "?" ~pos:2 0 1 in
      Alcotest.(check string) "exactly" "a-?DEFFxabcdef--!" (contents ());
      Lwt.return_unit)

let bounds () =
  with_text "bounds" "0123456789" (fun file ->
      let buffer = Buffer.create 4 and bytes = Bytes.create 4 in
      let raises name f =
        Alcotest.check_raises name (Invalid_argument ("Ringway_lwt.File." ^ name)) (fun () ->
            ignore (f ()))
      in
      List.iter
        (fun (off, len) ->
          raises "read" (fun () -> unit (File.read file buffer off len));
          raises "read_bytes" (fun () -> unit (File.read_bytes file bytes off len));
          raises "write" (fun () -> unit (File.write file buffer off len));
          raises "write_bytes" (fun () -> unit (File.write_bytes file bytes off len));
          raises "write_string" (fun () -> unit (File.write_string file "abcd" off len));
          raises "pread" (fun () -> unit (File.pread file buffer ~pos:0 off len));
          raises "pread_bytes" (fun () -> unit (File.pread_bytes file bytes ~pos:0 off len));
          raises "pwrite" (fun () -> unit (File.pwrite file buffer ~pos:0 off len));
          raises "pwrite_bytes" (fun () -> unit (File.pwrite_bytes file bytes ~pos:0 off len));
          raises "pwrite_string" (fun () -> unit (File.pwrite_string file "abcd" ~pos:0 off len));
          raises "pread_exactly" (fun () -> File.pread_exactly file buffer ~pos:0 off len);
          raises "read_exactly_bytes" (fun () -> File.read_exactly_bytes file bytes off len);
          raises "write_exactly_string" (fun () -> File.write_exactly_string file "abcd" off len);
          raises "read_ranges" (fun () ->
              unit (File.read_ranges file [| { pos = 0; buffer; off; len } |])))
        [ (-1, 2); (0, 5); (3, 2); (0, -1); (max_int, 1); (1, max_int) ];
      let* () = fails (unix_error EINVAL "pread" "") (File.pread file buffer ~pos:(-1) 0 1) in
      let* () = fails (unix_error EINVAL "pwrite" "") (File.pwrite file buffer ~pos:(-1) 0 1) in
      let* () = fails (unix_error EINVAL "ftruncate" "") (File.truncate file (-1)) in
      let* () = fails (unix_error EINVAL "fallocate" "") (File.allocate file ~pos:(-1) ~len:1) in
      let* () = fails (unix_error EINVAL "lseek" "") (File.lseek file (-1) SEEK_SET) in
      Lwt.return_unit)

(* Sixty-four reads at the current position at once get what as many in sequence get. *)
let concurrent prepare =
  let block = 100 in
  let all = String.init (64 * block) (fun i -> Char.chr ((i / block) + 32)) in
  with_text "concurrent" all (fun file ->
      let buffers = List.init 64 (fun _ -> Bytes.create block) in
      prepare ();
      let* counts = Lwt.all (List.map (fun b -> File.read_bytes file b 0 block) buffers) in
      List.iter (fun n -> Alcotest.(check int) "count" block n) counts;
      Alcotest.(check string)
        "in the order of the calls" all
        (String.concat "" (List.map Bytes.to_string buffers));
      (* So is lseek. *)
      let* _ = File.lseek file 0 SEEK_SET in
      prepare ();
      let first = File.read_bytes file (List.nth buffers 0) 0 block in
      let seek = File.lseek file 0 SEEK_SET in
      let second = File.read_bytes file (List.nth buffers 1) 0 block in
      let* counts = Lwt.all [ first; seek; second ] in
      Alcotest.(check (list int)) "counts" [ block; 0; block ] counts;
      Alcotest.(check bool)
        "the same block" true
        (Bytes.equal (List.nth buffers 0) (List.nth buffers 1));
      (* Some are cancelled before their turn: the others do not notice. *)
      let* _ = File.lseek file 0 SEEK_SET in
      prepare ();
      let first = File.read_bytes file (Bytes.create block) 0 block in
      let reads = List.map (fun b -> File.read_bytes file b 0 block) buffers in
      let pending = List.filter Lwt.is_sleeping reads in
      List.iteri (fun i p -> if i mod 2 = 1 then Lwt.cancel p) pending;
      let* _ = outcome first in
      let* outcomes = Lwt.all (List.map outcome reads) in
      let canceled = List.length (List.filter (( = ) "canceled") outcomes) in
      Alcotest.(check int) "cancelled" (List.length pending / 2) canceled;
      let* position = File.lseek file 0 SEEK_CUR in
      Alcotest.(check int) "position" (min (64 * block) (block * (65 - canceled))) position;
      Lwt.return_unit)

(* What the backend transfers in parts, retries, and completes in another order. *)
let faults () =
  let backend = List.hd (Way.backends ()) in
  let dispatcher =
    Dispatcher.create
      (Queue.create ~backend ~faults:"seed=11 short=600 retryable=200 delay=300/5" ())
  in
  let previous = if Way.is "engine" then Some (Dispatcher.current ()) else None in
  Dispatcher.set_current (Some dispatcher);
  Dispatcher.attach dispatcher;
  let contents = String.init 100_000 (fun i -> Char.chr ((i * 31) land 0xff)) in
  write_file "faults" "";
  let* () =
    File.with_file (path "faults") [ O_RDWR ] 0 (fun file ->
        let* () =
          Lwt.join
            (List.init 100 (fun i ->
                 File.pwrite_exactly_string file contents ~pos:(i * 1000) (i * 1000) 1000))
        in
        Alcotest.(check bool) "written" true (Way.read_file (path "faults") = contents);
        without_cache ();
        let ranges =
          Array.init 100 (fun i ->
              { File.pos = i * 1000; buffer = Buffer.create 1000; off = 0; len = 1000 })
        in
        let* results = File.read_ranges file ranges in
        Array.iteri
          (fun i result ->
            Alcotest.(check bool) "read" true (result = Ok 1000);
            Alcotest.(check string)
              "range"
              (String.sub contents (i * 1000) 1000)
              (Buffer.to_string ranges.(i).buffer))
          results;
        without_cache ();
        let bytes = Bytes.create 100_000 in
        let* () = File.read_exactly_bytes file bytes 0 100_000 in
        Alcotest.(check bool) "exactly" true (Bytes.to_string bytes = contents);
        Lwt.return_unit)
  in
  Dispatcher.set_current previous;
  Lwt.return_unit

(* The page cache has the first half, and reading the second one fails: as for the system call, the
   bytes before the error are the result. *)
let half_cached () =
  let backend = List.hd (Way.backends ()) in
  if backend = Queue.Kaio then begin
    Way.skip "kaio reads such files on threads, which faults do not reach";
    Lwt.return_unit
  end
  else
    (* Longer than what the page cache keeps as one piece. *)
    let half_length = 524_288 in
    let length = 2 * half_length in
    with_text "half" (String.make half_length 'a' ^ String.make half_length 'b') (fun file ->
        let bytes = Bytes.create length in
        let failing read =
          let dispatcher = Dispatcher.create (Queue.create ~backend ~faults:"errors=1000" ()) in
          let previous = if Way.is "engine" then Some (Dispatcher.current ()) else None in
          Dispatcher.set_current (Some dispatcher);
          Dispatcher.attach dispatcher;
          let read = read () in
          Dispatcher.set_current previous;
          read
        in
        let rec half name read attempts =
          if attempts = 0 then begin
            Way.skip (name ^ ": the page cache always has the whole file");
            Lwt.return_unit
          end
          else
            let* () = File.fsync file in
            let* () = File.advise file ~pos:half_length ~len:half_length Dont_need in
            let* (_ : int) = File.lseek file 0 SEEK_SET in
            let* n = failing read in
            if n = length then half name read (attempts - 1)
            else begin
              Alcotest.(check int) name half_length n;
              Alcotest.(check string)
                name (String.make half_length 'a')
                (Bytes.sub_string bytes 0 half_length);
              Lwt.return_unit
            end
        in
        let* () = settle file in
        let* () = half "pread" (fun () -> File.pread_bytes file bytes ~pos:0 0 length) 100 in
        half "read" (fun () -> File.read_bytes file bytes 0 length) 100)

let ranges prepare =
  with_text "ranges" "0123456789" (fun file ->
      let buffer = Buffer.of_string "----------" in
      let range pos off len = { File.pos; buffer; off; len } in
      let* () = settle file in
      prepare ();
      let* results =
        File.read_ranges file
          [| range 8 0 4; range 0 4 2; range (-1) 0 1; range 5 6 0; range 20 9 1 |]
      in
      Alcotest.(check string) "buffer" "89--01----" (Buffer.to_string buffer);
      Alcotest.(check (list string))
        "results"
        [ "2"; "2"; unix_error EINVAL "pread" ""; "0"; "0" ]
        (Array.to_list
           (Array.map
              (function Ok n -> string_of_int n | Error exn -> Printexc.to_string exn)
              results));
      let* none = File.read_ranges file [||] in
      Alcotest.(check int) "none" 0 (Array.length none);
      (* More than the queue holds. *)
      prepare ();
      let* results = File.read_ranges file (Array.init 5000 (fun i -> range (i mod 10) 0 1)) in
      Array.iter (fun result -> Alcotest.(check bool) "one byte" true (result = Ok 1)) results;
      prepare ();
      let many = File.read_ranges file (Array.init 3000 (fun i -> range (i mod 10) 0 1)) in
      if Lwt.is_sleeping many then begin
        Lwt.cancel many;
        fails "canceled" many
      end
      else Lwt.return_unit)

(* ---- Other operations ----------------------------------------------------------------------- *)

let others () =
  with_text "others" "0123456789" (fun file ->
      let* () = File.truncate file 4 in
      Alcotest.(check string) "truncate" "0123" (Way.read_file (path "others"));
      let* stat = File.stat file in
      let expected = Unix.stat (path "others") in
      Alcotest.(check bool) "stat" true ({ stat with st_atime = expected.st_atime } = expected);
      let* result = outcome (File.allocate file ~pos:0 ~len:10_000) in
      if result = unix_error EOPNOTSUPP "fallocate" "" then
        Way.skip "the file system does not support fallocate"
      else begin
        Alcotest.(check string) "allocate" "ok" result;
        Alcotest.(check int) "size" 10_000 (Unix.stat (path "others")).st_size
      end;
      let* () =
        Lwt_list.iter_s
          (File.advise file ~pos:0 ~len:0)
          [ Normal; Random; Sequential; Will_need; Dont_need; No_reuse ]
      in
      let* () = File.fsync file in
      let* () = File.fdatasync file in
      let* end_ = File.lseek file (-1) SEEK_END in
      Alcotest.(check int) "lseek" ((Unix.stat (path "others")).st_size - 1) end_;
      Lwt.return_unit)

let opening () =
  let open_ ?direct name flags = unit (File.openfile ?direct name flags 0o600) in
  let* () = fails (unix_error ENOENT "open" "/missing/x") (open_ "/missing/x" [ O_RDONLY ]) in
  let* () = fails (unix_error EISDIR "open" "/tmp") (open_ "/tmp" [ O_WRONLY ]) in
  let* () = fails (unix_error ENOENT "open" "a\000b") (open_ "a\000b" [ O_RDONLY ]) in
  let new_file = path "new" in
  let* file = File.openfile new_file [ O_WRONLY; O_CREAT; O_EXCL ] 0o640 in
  Alcotest.(check int) "permissions" 0o640 (Unix.stat new_file).st_perm;
  let* () =
    fails (unix_error EEXIST "open" new_file) (open_ new_file [ O_WRONLY; O_CREAT; O_EXCL ])
  in
  let* () = fails (unix_error EBADF "read" "") (File.read_bytes file (Bytes.create 1) 0 1) in
  let* () = File.close file in
  (* with_file closes whatever happens. *)
  let kept = ref file in
  let* () =
    fails "Stdlib.Exit"
      (File.with_file new_file [ O_RDONLY ] 0 (fun file ->
           kept := file;
           Lwt.fail Exit))
  in
  let* () = fails (unix_error EBADF "close" "") (File.close !kept) in
  let* () =
    fails "Stdlib.Exit"
      (File.with_file new_file [ O_RDONLY ] 0 (fun file ->
           kept := file;
           raise Exit))
  in
  fails (unix_error EBADF "close" "") (File.close !kept)

let direct () =
  let* created =
    let file = File.openfile ~direct:true (path "direct") [ O_RDWR; O_CREAT ] 0o600 in
    outcome (Lwt.bind file File.close)
  in
  if created <> "ok" then begin
    Way.skip ("the file system does not support direct I/O: " ^ created);
    Lwt.return_unit
  end
  else
    File.with_file ~direct:true (path "direct") [ O_RDWR ] 0 (fun file ->
        let alignment = File.direct_alignment file in
        Alcotest.(check bool) "alignment" true (alignment.offset >= 1);
        let buffer = Buffer.create_aligned 8192 in
        for i = 0 to 8191 do
          Bigarray.Array1.set buffer i (Char.chr (i land 0xff))
        done;
        let* () = File.pwrite_exactly file buffer ~pos:0 0 8192 in
        let again = Buffer.create_aligned 4096 in
        let* n = File.pread file again ~pos:4096 0 4096 in
        Alcotest.(check int) "read" 4096 n;
        Alcotest.(check string) "same" (text buffer 4096 4096) (Buffer.to_string again);
        (* Bytes need no alignment. *)
        let bytes = Bytes.create 4097 in
        let* n = File.pread_bytes file bytes ~pos:0 1 4096 in
        Alcotest.(check (pair int string))
          "bytes"
          (4096, text buffer 0 4096)
          (n, Bytes.sub_string bytes 1 4096);
        let* n = File.pread file again ~pos:8192 0 4096 in
        Alcotest.(check int) "at the end" 0 n;
        (* An error says what is wrong. *)
        let block = alignment.offset in
        if block = 1 then Lwt.return_unit
        else
          let text kind len where =
            Printf.sprintf "direct %s of %d bytes at %s: both must be multiples of %d" kind len
              where block
          in
          let* () =
            fails
              (unix_error EINVAL "pwrite" (text "write" 3 "offset 0"))
              (File.pwrite_string file "abc" ~pos:0 0 3)
          in
          let* () =
            fails
              (unix_error EINVAL "pwrite" (text "write" block "offset 7"))
              (File.pwrite file buffer ~pos:7 0 block)
          in
          let* () =
            fails
              (unix_error EINVAL "write" (text "write" 3 "the current position"))
              (File.write_string file "abc" 0 3)
          in
          let* () =
            fails
              (unix_error EINVAL "pread" (text "read" block "offset 7"))
              (File.pread file buffer ~pos:7 0 block)
          in
          let* at_odd_address = outcome (File.pwrite file buffer ~pos:0 1 block) in
          let address = "the buffer's address must be a multiple of" in
          let rec names i =
            i + String.length address <= String.length at_odd_address
            && (String.sub at_odd_address i (String.length address) = address || names (i + 1))
          in
          Alcotest.(check bool) at_odd_address true (at_odd_address = "ok" || names 0);
          (* The address is not blamed for the position. *)
          let* _ = File.lseek file 7 SEEK_SET in
          let* () =
            fails (unix_error EINVAL "write" "") (File.write file buffer 0 block)
          in
          fails (unix_error EINVAL "read" "") (File.read file buffer 0 block))

(* Reads and writes that leave no pages have the same results. *)
let dont_cache () =
  let name = path "dont-cache" in
  File.with_file ~dont_cache:true name [ O_RDWR; O_CREAT ] 0o600 (fun file ->
      let* () = File.write_exactly_string file (String.make 10_000 'x') 0 10_000 in
      let* () = File.pwrite_exactly_string file "yz" ~pos:5000 0 2 in
      let buffer = Buffer.create 10_000 and bytes = Bytes.create 4 in
      let* n = File.pread file buffer ~pos:0 0 10_000 in
      Alcotest.(check int) "pread" 10_000 n;
      Alcotest.(check string) "bytes" "xyzx" (text buffer 4999 4);
      let* _ = File.lseek file 4999 SEEK_SET in
      let* n = File.read_bytes file bytes 0 4 in
      Alcotest.(check (pair int string)) "read" (4, "xyzx") (n, Bytes.to_string bytes);
      let* n = File.pread_bytes file bytes ~pos:10_000 0 4 in
      Alcotest.(check int) "at the end" 0 n;
      Lwt.return_unit)

(* ---- Closing -------------------------------------------------------------------------------- *)

let closed () =
  let* file = File.openfile "/dev/null" [ O_RDWR ] 0 in
  let* () = File.close file in
  let buffer = Buffer.create 1 and bytes = Bytes.create 1 in
  let ebadf name = unix_error EBADF name "" in
  let* () =
    Lwt_list.iter_s
      (fun (name, f) -> fails (ebadf name) (f ()))
      [
        ("close", fun () -> File.close file);
        ("read", fun () -> unit (File.read file buffer 0 1));
        ("write", fun () -> unit (File.write file buffer 0 1));
        ("read", fun () -> unit (File.read_bytes file bytes 0 1));
        ("write", fun () -> unit (File.write_string file "x" 0 1));
        ("read", fun () -> File.read_exactly file buffer 0 1);
        ("write", fun () -> File.write_exactly file buffer 0 1);
        ("pread", fun () -> unit (File.pread file buffer ~pos:0 0 1));
        ("pwrite", fun () -> unit (File.pwrite file buffer ~pos:0 0 1));
        ("pread", fun () -> unit (File.read_ranges file [||]));
        ("lseek", fun () -> unit (File.lseek file 0 SEEK_SET));
        ("fstat", fun () -> unit (File.stat file));
        ("fsync", fun () -> File.fsync file);
        ("fdatasync", fun () -> File.fdatasync file);
        ("ftruncate", fun () -> File.truncate file 0);
        ("fallocate", fun () -> File.allocate file ~pos:0 ~len:1);
        ("posix_fadvise", fun () -> File.advise file ~pos:0 ~len:0 Normal);
      ]
  in
  Alcotest.check_raises "direct_alignment"
    (Unix.Unix_error (EBADF, "unix_file_descr", ""))
    (fun () -> ignore (File.direct_alignment file));
  Lwt.return_unit

(* The operations started before are performed, on this file. *)
let closed_in_flight () =
  let all = String.init 6400 (fun i -> Char.chr ((i / 100) + 32)) in
  write_file "in flight" all;
  let* file = File.openfile (path "in flight") [ O_RDWR ] 0 in
  let number = Way.number (File.unix_file_descr file) in
  without_cache ();
  let buffers = List.init 64 (fun _ -> Bytes.create 100) in
  let reads = List.map (fun b -> File.read_bytes file b 0 100) buffers in
  let writes = List.init 64 (fun i -> File.pwrite_string file "w" ~pos:(6400 + i) 0 1) in
  let closing = File.close file in
  Lwt.cancel closing;
  let late = File.pread_bytes file (Bytes.create 1) ~pos:0 0 1 in
  let* () = fails (unix_error EBADF "pread" "") (unit late) in
  (* Another file does not get the number before they have ended. *)
  let other = Unix.openfile (path "other") [ O_RDWR; O_CREAT; O_CLOEXEC ] 0o600 in
  Alcotest.(check bool) "another number" true (Way.number other <> number);
  let* counts = Lwt.all (reads @ writes) in
  Alcotest.(check int) "all" (6400 + 64) (List.fold_left ( + ) 0 counts);
  Alcotest.(check string) "read" all (String.concat "" (List.map Bytes.to_string buffers));
  let* () = closing in
  Alcotest.(check int) "written" 6464 (Unix.stat (path "in flight")).st_size;
  Alcotest.(check int) "not to the other" 0 (Unix.fstat other).st_size;
  Unix.close other;
  let last = Unix.dup Unix.stdin in
  Alcotest.(check int) "closed" number (Way.number last);
  Unix.close last;
  Lwt.return_unit

(* Operations that may never end do not keep a file from being closed. *)
let closed_while_waiting () =
  let name = path "fifo" in
  Unix.mkfifo name 0o600;
  let* file = File.openfile name [ O_RDWR ] 0 in
  let keep = Unix.openfile name [ O_RDWR; O_CLOEXEC ] 0 in
  let bytes = Bytes.create 10 in
  let reads = List.init 3 (fun _ -> File.read_bytes file bytes 0 10) in
  let* () = Lwt_unix.sleep 0.01 in
  let closing = File.close file in
  let* () =
    Lwt_list.iter_s (fun read -> fails (unix_error EBADF "read" "") (unit read)) reads
  in
  (* Threads inside read(2) cannot be stopped. *)
  let* () = Lwt_unix.sleep 0.01 in
  if Lwt.is_sleeping closing then ignore (Unix.write_substring keep "xyz" 0 3);
  let rec feed () =
    if Lwt.is_sleeping closing then begin
      ignore (Unix.write_substring keep "x" 0 1);
      Lwt.bind (Lwt_unix.sleep 0.001) feed
    end
    else closing
  in
  let* () = feed () in
  Unix.close keep;
  Lwt.return_unit

(* A device without a position, though it accepts a read of nothing at an offset. *)
let device_without_position () =
  match Unix.openfile "/dev/kmsg" [ O_RDONLY; O_CLOEXEC ] 0 with
  | exception Unix.Unix_error _ ->
      Way.skip "no /dev/kmsg";
      Lwt.return_unit
  | fd ->
      (* After the last message. *)
      ignore (Unix.lseek fd 0 SEEK_END);
      let file = File.of_unix_file_descr fd in
      let bytes = Bytes.create 8192 in
      let espipe = unix_error ESPIPE "pread" "" in
      let* () = fails espipe (unit (File.pread_bytes file bytes ~pos:0 0 1)) in
      if Way.is "kaio" || Way.is "threads" then
        (* A thread inside read(2) cannot be stopped. *)
        File.close file
      else begin
        let rec until_closed () =
          Lwt.try_bind
            (fun () -> File.read_bytes file bytes 0 8192)
            (fun _ -> until_closed ())
            (fun exn -> Lwt.return (Printexc.to_string exn))
        in
        let reading = until_closed () in
        let* () = Lwt_unix.sleep 0.05 in
        let* () = Lwt_unix.with_timeout 10. (fun () -> File.close file) in
        let* got = reading in
        Alcotest.(check string) "the read has ended" (unix_error EBADF "read" "") got;
        Lwt.return_unit
      end

(* Reads of a pipe are performed in the order of the calls, and so are writes. Neither waits for the
   other direction. *)
let streams () =
  let pipe () =
    let input, output = Unix.pipe ~cloexec:true () in
    (File.of_unix_file_descr input, File.of_unix_file_descr output)
  in
  let input, output = pipe () in
  let length = 300_000 in
  let all = Bytes.concat Bytes.empty (List.map (Bytes.make length) [ 'a'; 'b'; 'c' ]) in
  let writes =
    List.init 3 (fun i ->
        File.write_exactly_bytes output (Bytes.sub all (i * length) length) 0 length)
  in
  let got = Bytes.create (3 * length) in
  let rec read off =
    if off = Bytes.length got then Lwt.return_unit
    else
      let* n = File.read_bytes input got off (min 5000 (Bytes.length got - off)) in
      read (off + n)
  in
  let* () = Lwt.join (read 0 :: writes) in
  Alcotest.(check bool) "large ones" true (Bytes.equal all got);
  let numbers = List.init 200 (Printf.sprintf "%05d\n") in
  let waiting = List.map (fun _ -> Bytes.create 6) numbers in
  let reads = List.map (fun bytes -> unit (File.read_bytes input bytes 0 6)) waiting in
  let writes = List.map (fun s -> unit (File.write_string output s 0 6)) numbers in
  let* () = Lwt.join (reads @ writes) in
  Alcotest.(check (list string)) "small ones" numbers (List.map Bytes.to_string waiting);
  let* () = fails (unix_error ESPIPE "lseek" "") (unit (File.lseek input 0 SEEK_CUR)) in
  (* One that was cancelled while it waited leaves its turn to the next. *)
  let bytes = Bytes.create 1 in
  let first = File.read_bytes input bytes 0 1 in
  let second = File.read_bytes input (Bytes.create 1) 0 1 in
  let third = File.read_bytes input bytes 0 1 in
  Lwt.cancel second;
  let* () = fails (unix_error ESPIPE "lseek" "") (unit (File.lseek input 0 SEEK_CUR)) in
  let* () = File.write_exactly_string output "xy" 0 2 in
  let* _ = first in
  let* _ = third in
  Alcotest.(check string) "the second byte" "y" (Bytes.to_string bytes);
  (* One that was cancelled in flight takes nothing of what is written then. *)
  let reading = File.read_bytes input (Bytes.create 1) 0 1 in
  let* () = Lwt_unix.sleep 0.01 in
  Lwt.cancel reading;
  ignore (Unix.write_substring (File.unix_file_descr output) "z" 0 1);
  let* _ = Lwt_unix.with_timeout 10. (fun () -> File.read_bytes input bytes 0 1) in
  Alcotest.(check string) "the third byte" "z" (Bytes.to_string bytes);
  let* () = File.close input in
  File.close output

(* ---- Path ----------------------------------------------------------------------------------- *)

let () =
  Way.run "file"
    [
      ("reading", Way.lwt (both_ways reading));
      ("a position that others have", Way.lwt shared_position);
      ("writing", Way.lwt writing);
      ("bounds", Way.lwt bounds);
      ("concurrent reads at the position", Way.lwt (both_ways concurrent));
      ("short transfers, retries and delays", Way.lwt faults);
      ("half cached", Way.lwt half_cached);
      ("ranges", Way.lwt (both_ways ranges));
      ("other operations", Way.lwt others);
      ("opening", Way.lwt opening);
      ("direct I/O", Way.lwt direct);
      ("transfers that leave no pages", Way.lwt dont_cache);
      ("streams", Way.lwt streams);
      ("a device without a position", Way.lwt device_without_position);
      ("closed", Way.lwt closed);
      ("closed in flight", Way.lwt closed_in_flight);
      ("closed while waiting", Way.lwt closed_while_waiting);
    ]
