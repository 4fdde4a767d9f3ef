(* Tests of Reader, on files and on connections. *)

open Lwt.Infix
open Common
module Reader = Ringway_lwt.Reader
module Buffer = Ringway.Buffer

let ebadf = Unix.Unix_error (EBADF, "read", "")

let read_all ?(chunk = 4096) reader =
  let contents = Stdlib.Buffer.create 1000 in
  let bytes = Bytes.create chunk in
  let rec loop () =
    Reader.read reader bytes >>= function
    | `Eof -> Lwt.return (Stdlib.Buffer.contents contents)
    | `Ok n ->
        Stdlib.Buffer.add_subbytes contents bytes 0 n;
        loop ()
  in
  loop ()

let sizes () =
  let contents = pattern 300_001 in
  let path = new_file contents in
  let case ~cold buffer_size chunk =
    (if cold then drop_cache path else Lwt.return_unit) >>= fun () ->
    Reader.with_file ~buffer_size path (read_all ~chunk) >|= fun read ->
    check bool
      (Printf.sprintf "buffer %d, reads of %d%s" buffer_size chunk (if cold then ", cold" else ""))
      true (read = contents)
  in
  Lwt_list.iter_s
    (fun cold ->
      Lwt_list.iter_s
        (fun (buffer_size, chunk) -> case ~cold buffer_size chunk)
        [ (1, 1000); (13, 7); (4096, 1); (32768, 32768); (32768, 100_000); (4_000_000, 5_000_000) ])
    [ false; true ]

let buffers () =
  let contents = pattern 100_000 in
  let path = new_file contents in
  Reader.with_file ~buffer_size:1000 path (fun reader ->
      let buffer = Buffer.create 100_000 in
      let rec loop off =
        Reader.read_buffer reader ~off ~len:(min 3333 (100_000 - off)) buffer >>= function
        | `Eof -> Alcotest.fail "ends early"
        | `Ok n when off + n = 100_000 -> Lwt.return_unit
        | `Ok n -> loop (off + n)
      in
      loop 0 >>= fun () ->
      check bool "contents" true (Buffer.to_string buffer = contents);
      Reader.read_buffer reader buffer >|= function
      | `Eof -> ()
      | `Ok _ -> Alcotest.fail "more data than the file has")

let exactly () =
  let path = new_file (pattern 10_000) in
  Reader.with_file ~buffer_size:512 path (fun reader ->
      let bytes = Bytes.make 8_010 '.' in
      Reader.read_exactly reader ~off:5 ~len:8_000 bytes >>= fun result ->
      check bool "read" true (result = `Ok);
      check bool "contents" true
        (Bytes.to_string bytes = "....." ^ String.sub (pattern 10_000) 0 8_000 ^ ".....");
      Reader.read_exactly reader ~len:3_000 bytes >>= fun result ->
      check bool "end" true (result = `Eof 2_000);
      Reader.read_exactly reader ~len:0 bytes >>= fun result ->
      check bool "nothing" true (result = `Ok);
      Reader.read_exactly reader ~len:1 bytes >|= fun result ->
      check bool "at the end" true (result = `Eof 0))

let lines () =
  let long = String.make 5000 'x' in
  let contents = "one\ntwo\r\n\n\r\n" ^ long ^ "\r\n" ^ "a\rb\nlast\r" in
  let path = new_file contents in
  let expected = [ "one"; "two"; ""; ""; long; "a\rb"; "last\r" ] in
  Lwt_list.iter_s
    (fun buffer_size ->
      Reader.with_file ~buffer_size path (fun reader ->
          let rec loop lines =
            Reader.read_line reader >>= function
            | `Eof -> Lwt.return (List.rev lines)
            | `Ok line -> loop (line :: lines)
          in
          loop [] >|= check (Alcotest.list string) "lines" expected))
    [ 1; 2; 3; 4; 5; 8; 16; 5000; 32768 ]

let open_errors () =
  let missing = in_directory "missing" in
  fails "missing"
    (Unix.Unix_error (ENOENT, "open", missing))
    (fun () -> Reader.open_file missing)
  >>= fun () ->
  fails "NUL in the path"
    (Unix.Unix_error (ENOENT, "open", "a\000b"))
    (fun () -> Reader.open_file "a\000b")
  >>= fun () ->
  Reader.with_file (Lazy.force directory) (fun reader ->
      fails "directory"
        (Unix.Unix_error (EISDIR, "read", ""))
        (fun () -> Reader.read reader (Bytes.create 10)))

let invalid () =
  Reader.with_file (new_file "abc") (fun reader ->
      List.iter
        (fun (off, len) ->
          match Reader.read reader ~off ~len (Bytes.create 10) with
          | _ -> Alcotest.failf "off %d, len %d is accepted" off len
          | exception Invalid_argument _ -> ())
        [ (-1, 1); (0, 11); (10, 1); (0, -1); (max_int, 1) ];
      (match Reader.open_file ~buffer_size:0 "/" with
      | _ -> Alcotest.fail "buffer_size 0 is accepted"
      | exception Invalid_argument _ -> ());
      Reader.read reader ~len:0 Bytes.empty >|= fun result ->
      check bool "nothing" true (result = `Ok 0))

(* Concurrent reads get consecutive parts, in the order of the calls. *)
let concurrent () =
  let contents = pattern 200_000 in
  let path = new_file contents in
  let case buffer_size =
    drop_cache path >>= fun () ->
    Reader.with_file ~buffer_size path (fun reader ->
        let parts = List.init 200 (fun _ -> Bytes.create 1000) in
        Lwt_list.map_p (fun bytes -> Reader.read_exactly reader bytes) parts >|= fun results ->
        check bool "all" true (List.for_all (( = ) `Ok) results);
        check bool "in order" true (Bytes.to_string (Bytes.concat Bytes.empty parts) = contents))
  in
  Lwt_list.iter_s case [ 100; 4096; 32768 ]

let use_after_close () =
  Reader.open_file (new_file "abc") >>= fun reader ->
  Reader.close reader >>= fun () ->
  (* The number of the descriptor is in use again. *)
  let other = Unix.openfile (new_file "other") [ O_RDONLY ] 0 in
  Reader.close reader >>= fun () ->
  let bytes = Bytes.create 10 in
  fails "read" ebadf (fun () -> Reader.read reader bytes) >>= fun () ->
  fails "read nothing" ebadf (fun () -> Reader.read reader ~len:0 bytes) >>= fun () ->
  fails "read_buffer" ebadf (fun () -> Reader.read_buffer reader (Buffer.create 10)) >>= fun () ->
  fails "read_exactly" ebadf (fun () -> Reader.read_exactly reader bytes) >>= fun () ->
  fails "read_line" ebadf (fun () -> Reader.read_line reader) >>= fun () ->
  fails "read_char" ebadf (fun () -> Reader.read_char reader) >|= fun () ->
  check int "the other file is open" 5 (Unix.read other bytes 0 10);
  Unix.close other

(* Connections. *)

let pair ?buffer_size () =
  let ours, theirs = socket_pair () in
  (Reader.of_connection ?buffer_size ours, theirs)

let send fd string =
  Lwt_unix.write_string fd string 0 (String.length string) >|= fun n ->
  check int "sent" (String.length string) n

let receive () =
  let reader, peer = pair () in
  let bytes = Bytes.create 100 in
  let pending = Reader.read reader bytes in
  pauses 3 >>= fun () ->
  check bool "waits" true (Lwt.is_sleeping pending);
  send peer "hello" >>= fun () ->
  pending >>= fun result ->
  check bool "5 bytes" true (result = `Ok 5);
  check string "data" "hello" (Bytes.sub_string bytes 0 5);
  Lwt_unix.close peer >>= fun () ->
  Reader.read reader bytes >>= fun result ->
  check bool "end" true (result = `Eof);
  Reader.read reader bytes >>= fun result ->
  check bool "end again" true (result = `Eof);
  Reader.close reader

(* A read that was cancelled takes nothing from the next one, however late the data is. *)
(* The number of a descriptor that the program has closed belongs to another file. *)
let closed_descriptor () =
  let ours, theirs = socket_pair () in
  let reader = Reader.of_connection ~close:Lwt.return ours in
  let writer = Ringway_lwt.Writer.of_connection ~close:Lwt.return ours in
  Lwt_unix.close ours >>= fun () ->
  let other, peer = socket_pair () in
  check bool "the same number" true
    (Lwt_unix.unix_file_descr other = Lwt_unix.unix_file_descr ours);
  send peer "secret" >>= fun () ->
  let is_ebadf name f =
    result f >|= function
    | Error (Unix.Unix_error (EBADF, _, _)) -> ()
    | Error exn -> Alcotest.failf "%s: %s" name (show_exn exn)
    | Ok _ -> Alcotest.failf "%s: succeeded" name
  in
  is_ebadf "read" (fun () -> Reader.read_line reader) >>= fun () ->
  Ringway_lwt.Writer.write writer "x" >>= fun () ->
  is_ebadf "write" (fun () -> Ringway_lwt.Writer.flush writer) >>= fun () ->
  let bytes = Bytes.create 6 in
  Lwt_unix.read other bytes 0 6 >>= fun n ->
  check string "the data is there" "secret" (Bytes.sub_string bytes 0 n);
  Reader.close reader >>= fun () ->
  Ringway_lwt.Writer.abort writer >>= fun () ->
  Lwt_list.iter_s Lwt_unix.close [ theirs; other; peer ]

let cancel_then_read () =
  let reader, peer = pair () in
  let bytes = Bytes.create 100 in
  let case ~before_send ~after_send =
    let cancelled = Reader.read reader bytes in
    pauses before_send >>= fun () ->
    send peer "late data" >>= fun () ->
    pauses after_send >>= fun () ->
    let was_sleeping = Lwt.is_sleeping cancelled in
    Lwt.cancel cancelled;
    let read =
      result (fun () -> cancelled) >>= function
      | Ok (`Ok n) ->
          check bool "not cancelled" false (was_sleeping && after_send = 0);
          Lwt.return n
      | Ok `Eof -> Alcotest.fail "end"
      | Error Lwt.Canceled -> (
          Reader.read_exactly reader ~len:9 bytes >|= function
          | `Ok -> 9
          | `Eof n -> n)
      | Error exn -> Lwt.fail exn
    in
    read >|= fun n -> check string "data" "late data" (Bytes.sub_string bytes 0 n)
  in
  Lwt_list.iter_s
    (fun (before_send, after_send) -> case ~before_send ~after_send)
    (List.concat (List.init 4 (fun b -> List.init 6 (fun a -> (b, a)))))
  >>= fun () ->
  Reader.close reader >>= fun () -> Lwt_unix.close peer

let cancel_storm () =
  let reader, peer = pair ~buffer_size:7 () in
  let total = 20_000 in
  let contents = pattern total in
  let received = Stdlib.Buffer.create total in
  let bytes = Bytes.create 5 in
  let random = Random.State.make [| 11 |] in
  let rec produce off =
    if off = total then Lwt_unix.close peer
    else
      let n = min (1 + Random.State.int random 40) (total - off) in
      send peer (String.sub contents off n) >>= fun () ->
      pauses (Random.State.int random 2) >>= fun () -> produce (off + n)
  in
  let rec consume () =
    let read = Reader.read reader bytes in
    pauses (Random.State.int random 3) >>= fun () ->
    Lwt.cancel read;
    result (fun () -> read) >>= function
    | Ok `Eof -> Lwt.return_unit
    | Ok (`Ok n) ->
        Stdlib.Buffer.add_subbytes received bytes 0 n;
        consume ()
    | Error Lwt.Canceled -> consume ()
    | Error exn -> Lwt.fail exn
  in
  Lwt.join [ produce 0; consume () ] >>= fun () ->
  check bool "every byte once" true (Stdlib.Buffer.contents received = contents);
  Reader.close reader

let cancel_composed () =
  let reader, peer = pair () in
  let bytes = Bytes.create 10 in
  send peer "ab\ncd" >>= fun () ->
  let exactly = Reader.read_exactly reader bytes in
  pauses 5 >>= fun () ->
  Lwt.cancel exactly;
  fails "read_exactly" Lwt.Canceled (fun () -> exactly) >>= fun () ->
  check int "kept" 5 (Reader.buffered reader);
  Reader.read_line reader >>= fun line ->
  check bool "a line" true (line = `Ok "ab");
  let line = Reader.read_line reader in
  pauses 5 >>= fun () ->
  Lwt.cancel line;
  fails "read_line" Lwt.Canceled (fun () -> line) >>= fun () ->
  send peer "ef\ngh" >>= fun () ->
  Reader.read reader ~len:1 bytes >>= fun result ->
  check bool "one byte" true (result = `Ok 1 && Bytes.get bytes 0 = 'c');
  Reader.read_line reader >>= fun line ->
  check bool "the rest of the line" true (line = `Ok "def");
  Reader.close reader >>= fun () -> Lwt_unix.close peer

let close_while_reading () =
  let case keep_open =
    let ours, peer = socket_pair () in
    let reader =
      if keep_open then Reader.of_connection ~close:(fun () -> Lwt.return_unit) ours
      else Reader.of_connection ours
    in
    let first = Reader.read reader (Bytes.create 1) in
    let second = Reader.read_line reader in
    pauses 3 >>= fun () ->
    Reader.close reader >>= fun () ->
    fails "the first" ebadf (fun () -> first) >>= fun () ->
    fails "the second" ebadf (fun () -> second) >>= fun () ->
    (if keep_open then Lwt_unix.close ours else Lwt.return_unit) >>= fun () ->
    (* The socket is really closed. *)
    Lwt_unix.read peer (Bytes.create 1) 0 1 >>= fun n ->
    check int "the peer reads the end" 0 n;
    Lwt_unix.close peer
  in
  case false >>= fun () -> case true

(* A receive that waits gets its data although the engine goes and comes. *)
let other_engine () =
  if not on_our_engine then Lwt.return_unit
  else
    let module Engine = Ringway_lwt.Engine in
    let reader, peer = pair () in
    let bytes = Bytes.create 5 in
    let receive string change =
      let read = Reader.read_exactly reader bytes in
      pauses 3 >>= fun () ->
      change ();
      pauses 3 >>= fun () ->
      send peer string >>= fun () ->
      read >|= fun result ->
      check bool "all" true (result = `Ok);
      check Common.string "data" string (Bytes.to_string bytes)
    in
    receive "first" Engine.remove >>= fun () ->
    check bool "removed" false (Engine.installed ());
    receive "again" (fun () ->
        match Engine.install () with Ok () -> () | Error reason -> Alcotest.fail reason)
    >>= fun () ->
    receive "third" ignore >>= fun () ->
    Reader.close reader >>= fun () -> Lwt_unix.close peer

let tests =
  [
    test_no_leak "all sizes of buffers and reads, cached and cold" sizes;
    test_no_leak "reads into buffers" buffers;
    test_no_leak "exact reads" exactly;
    test_no_leak "lines" lines;
    test_no_leak "errors of opening reach the caller" open_errors;
    test_no_leak "invalid arguments" invalid;
    test_no_leak "concurrent reads are served in order" concurrent;
    test_no_leak "use after close" use_after_close;
    test_no_leak "a connection" receive;
    test_no_leak "a descriptor that was closed" closed_descriptor;
    test_no_leak "cancelled receive: the data is kept" cancel_then_read;
    test_no_leak "cancelled receives: every byte arrives once" cancel_storm;
    test_no_leak "cancelled composed reads: the data is kept" cancel_composed;
    test_no_leak "close while a receive waits" close_while_reading;
    test "the engine is removed and installed while a receive waits" other_engine;
  ]
