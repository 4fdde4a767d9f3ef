(* Tests of Writer, on files and on connections. *)

open Lwt.Infix
open Common
module Reader = Ringway_lwt.Reader
module Writer = Ringway_lwt.Writer
module Buffer = Ringway.Buffer

let ebadf = Unix.Unix_error (EBADF, "write", "")
let error code = Unix.Unix_error (code, "write", "")

let sizes () =
  let contents = pattern 200_000 in
  let bytes = Bytes.of_string contents in
  let buffer = Buffer.of_string contents in
  let case buffer_size chunk =
    let path = new_path () in
    Writer.with_file ~buffer_size path (fun writer ->
        let rec loop i off =
          let len = min chunk (String.length contents - off) in
          if len = 0 then Lwt.return_unit
          else
            (match i mod 3 with
            | 0 -> Writer.write writer ~off ~len contents
            | 1 -> Writer.write_bytes writer ~off ~len bytes
            | _ -> Writer.write_buffer writer ~off ~len buffer)
            >>= fun () -> loop (i + 1) (off + len)
        in
        loop 0 0)
    >|= fun () ->
    check bool
      (Printf.sprintf "buffer %d, writes of %d" buffer_size chunk)
      true
      (file_contents path = contents)
  in
  Lwt_list.iter_s
    (fun (buffer_size, chunk) -> case buffer_size chunk)
    [ (1, 5000); (13, 7000); (100, 99); (4096, 1000); (32768, 32768); (32768, 200_000) ]

let nothing_early () =
  let path = new_path () in
  Writer.open_file path >>= fun writer ->
  Writer.write writer "abc" >>= fun () ->
  pauses 3 >>= fun () ->
  check string "not written" "" (file_contents path);
  check int "buffered" 3 (Writer.buffered writer);
  Writer.flush writer >>= fun () ->
  check string "flushed" "abc" (file_contents path);
  Writer.write_char writer 'd' >>= fun () ->
  Writer.fsync writer >>= fun () ->
  check string "synced" "abcd" (file_contents path);
  Writer.write writer "e" >>= fun () ->
  Writer.close writer >>= fun () ->
  check string "closed" "abcde" (file_contents path);
  Lwt.return_unit

(* The permissions are octal, the descriptor is not inherited, and the flags are those given. *)
let opening () =
  let path = new_path () in
  let umask = Unix.umask 0o022 in
  Writer.open_file path >>= fun writer ->
  let listed = Sys.command "ls -l /proc/self/fd | grep -q ringway_io" in
  check bool "not in a child" true (listed <> 0);
  check int "permissions" 0o644 ((Unix.stat path).st_perm);
  Writer.write writer "0123456789" >>= fun () ->
  Writer.close writer >>= fun () ->
  let private_path = new_path () in
  Writer.with_file ~perm:0o600 private_path (fun _ -> Lwt.return_unit) >>= fun () ->
  ignore (Unix.umask umask);
  check int "given permissions" 0o600 ((Unix.stat private_path).st_perm);
  Writer.with_file ~flags:[ O_WRONLY ] path (fun writer -> Writer.write writer "ab") >>= fun () ->
  check string "not truncated" "ab23456789" (file_contents path);
  Writer.with_file ~flags:[ O_WRONLY; O_APPEND ] path (fun writer -> Writer.write writer "XY")
  >>= fun () ->
  check string "appended" "ab23456789XY" (file_contents path);
  Writer.with_file path (fun _ -> Lwt.return_unit) >>= fun () ->
  check string "truncated" "" (file_contents path);
  let missing = in_directory "missing/file" in
  fails "missing directory"
    (Unix.Unix_error (ENOENT, "open", missing))
    (fun () -> Writer.open_file missing)

let ordered () =
  let path = new_path () in
  let line i = Printf.sprintf "%d %s\n" i (String.make (i mod 50) 'x') in
  Writer.with_file ~buffer_size:100 path (fun writer ->
      let write i =
        if i mod 7 = 0 then Writer.flush writer >>= fun () -> Lwt.return_unit
        else if i mod 5 = 0 then Writer.write_buffer writer (Buffer.of_string (line i))
        else Writer.write writer (line i)
      in
      Lwt_list.iter_p write (List.init 500 Fun.id))
  >|= fun () ->
  let expected =
    List.init 500 (fun i -> if i mod 7 = 0 then "" else line i) |> String.concat ""
  in
  check string "in the order of the calls" expected (file_contents path)

(* The errno reaches the caller, all later calls and close; the descriptor is closed. *)
let errors () =
  let path = "/proc/self/oom_score_adj" in
  Writer.open_file ~flags:[ O_WRONLY ] path >>= fun writer ->
  Writer.write writer "no number" >>= fun () ->
  fails "flush" (error EINVAL) (fun () -> Writer.flush writer) >>= fun () ->
  fails "write" (error EINVAL) (fun () -> Writer.write writer "0") >>= fun () ->
  fails "write_buffer" (error EINVAL) (fun () ->
      Writer.write_buffer writer (Buffer.of_string (String.make 50_000 '0')))
  >>= fun () ->
  fails "fsync" (error EINVAL) (fun () -> Writer.fsync writer) >>= fun () ->
  fails "close" (error EINVAL) (fun () -> Writer.close writer) >>= fun () ->
  Writer.open_file ~flags:[ O_WRONLY ] path >>= fun writer ->
  Writer.write writer "no number" >>= fun () ->
  fails "close flushes" (error EINVAL) (fun () -> Writer.close writer) >>= fun () ->
  fails "closed" ebadf (fun () -> Writer.write writer "0") >>= fun () ->
  fails "with_file" (error EINVAL) (fun () ->
      Writer.with_file ~flags:[ O_WRONLY ] path (fun writer -> Writer.write writer "no number"))

let use_after_close () =
  Writer.open_file (new_path ()) >>= fun writer ->
  Writer.write writer "abc" >>= fun () ->
  Writer.close writer >>= fun () ->
  let path = new_path () in
  let other = Unix.openfile path [ O_WRONLY; O_CREAT ] 0o600 in
  Writer.close writer >>= fun () ->
  Writer.abort writer >>= fun () ->
  fails "write" ebadf (fun () -> Writer.write writer "x") >>= fun () ->
  fails "write_bytes" ebadf (fun () -> Writer.write_bytes writer (Bytes.make 3 'x')) >>= fun () ->
  fails "write_buffer" ebadf (fun () ->
      Writer.write_buffer writer (Buffer.of_string (String.make 50_000 'x')))
  >>= fun () ->
  fails "flush" ebadf (fun () -> Writer.flush writer) >>= fun () ->
  fails "fsync" ebadf (fun () -> Writer.fsync writer) >|= fun () ->
  check int "the other file is open" 1 (Unix.write_substring other "y" 0 1);
  Unix.close other;
  check string "and nobody else wrote to it" "y" (file_contents path)

(* Connections. *)

let pair ?buffer_size () =
  let ours, theirs = socket_pair () in
  (Writer.of_connection ?buffer_size ours, theirs)

let receive_all fd =
  let bytes = Bytes.create 65536 in
  let contents = Stdlib.Buffer.create 65536 in
  let rec loop () =
    Lwt_unix.read fd bytes 0 (Bytes.length bytes) >>= fun n ->
    if n = 0 then Lwt.return (Stdlib.Buffer.contents contents)
    else begin
      Stdlib.Buffer.add_subbytes contents bytes 0 n;
      loop ()
    end
  in
  loop ()

(* A large message does not fit the socket, so writes are short. *)
let short_writes () =
  let contents = pattern 3_000_000 in
  let case buffer_size =
    let writer, peer = pair ~buffer_size () in
    let received = receive_all peer in
    Writer.write writer contents >>= fun () ->
    Writer.write_buffer writer (Buffer.of_string contents) >>= fun () ->
    Writer.close writer >>= fun () ->
    received >>= fun received ->
    check bool "all" true (received = contents ^ contents);
    Lwt_unix.close peer
  in
  Lwt_list.iter_s case [ 10_000; 32768; 4_000_000 ]

let broken_pipe () =
  let writer, peer = pair () in
  Lwt_unix.close peer >>= fun () ->
  Writer.write writer "x" >>= fun () ->
  fails "flush" (error EPIPE) (fun () -> Writer.flush writer) >>= fun () ->
  fails "close" (error EPIPE) (fun () -> Writer.close writer)

(* Fills the socket until a flush waits. *)
let rec fill writer written =
  let part = pattern 32768 in
  Writer.write writer part >>= fun () ->
  let flushed = Writer.flush writer in
  let rec settle n =
    if n = 0 || not (Lwt.is_sleeping flushed) then Lwt.return_unit
    else Lwt_unix.sleep 0.001 >>= fun () -> settle (n - 1)
  in
  settle 20 >>= fun () ->
  if Lwt.is_sleeping flushed then Lwt.return (flushed, written ^ part)
  else fill writer (written ^ part)

let cancelled_flush () =
  let writer, peer = pair () in
  fill writer "" >>= fun (flushed, written) ->
  Lwt.cancel flushed;
  fails "flush" Lwt.Canceled (fun () -> flushed) >>= fun () ->
  let cancelled = Writer.flush writer in
  pauses 3 >>= fun () ->
  Lwt.cancel cancelled;
  fails "flush again" Lwt.Canceled (fun () -> cancelled) >>= fun () ->
  let received = receive_all peer in
  Writer.write writer "the end" >>= fun () ->
  Writer.close writer >>= fun () ->
  received >>= fun received ->
  check bool "every byte once" true (received = written ^ "the end");
  Lwt_unix.close peer

(* The rest of a flush is cancelled after a short write, and while another call waits for its turn,
   which it gets. *)
let cancelled_rest () =
  let contents = pattern 4_000_000 in
  let writer, peer = pair ~buffer_size:4_000_100 () in
  Writer.write writer contents >>= fun () ->
  let flushed = Writer.flush writer in
  let part = Bytes.create 100_000 in
  (* Room for a part of the rest. *)
  Lwt_unix.read peer part 0 (Bytes.length part) >>= fun n ->
  pauses 5 >>= fun () ->
  check bool "short" true (Lwt.is_sleeping flushed);
  let next = Writer.flush writer in
  Lwt.cancel flushed;
  fails "flush" Lwt.Canceled (fun () -> flushed) >>= fun () ->
  let received = receive_all peer in
  next >>= fun () ->
  check int "flushed" 0 (Writer.buffered writer);
  Writer.write writer "the end" >>= fun () ->
  Writer.close writer >>= fun () ->
  received >>= fun received ->
  check bool "every byte once" true (Bytes.sub_string part 0 n ^ received = contents ^ "the end");
  Lwt_unix.close peer

(* The operation has ended before the descriptor is closed, whose number may be used again. *)
let abort_again () =
  let module Dispatcher = Ringway_lwt.Dispatcher in
  let in_flight () = Dispatcher.in_flight (Dispatcher.current ()) in
  let case name abort =
    let ours, theirs = socket_pair () in
    let idle = ref 0 and at_close = ref 0 in
    let close () =
      at_close := in_flight ();
      Lwt_unix.close ours
    in
    let writer = Writer.of_connection ~close ours in
    pauses 3 >>= fun () ->
    idle := in_flight ();
    fill writer "" >>= fun (flushed, _) ->
    abort writer >>= fun () ->
    fails "flush" ebadf (fun () -> flushed) >>= fun () ->
    check bool (name ^ ": nothing in flight at close") true (!at_close <= !idle);
    Lwt_unix.close theirs
  in
  case "once" Writer.abort >>= fun () ->
  case "twice" (fun writer -> Lwt.join [ Writer.abort writer; Writer.abort writer ]) >>= fun () ->
  case "after close" (fun writer ->
      let closed = Writer.close writer in
      pauses 3 >>= fun () ->
      Writer.abort writer >>= fun () -> fails "close" ebadf (fun () -> closed))

let abort_while_writing () =
  let writer, peer = pair () in
  fill writer "" >>= fun (flushed, _) ->
  let waiting = Writer.write writer (String.make 100_000 'x') in
  Writer.abort writer >>= fun () ->
  fails "flush" ebadf (fun () -> flushed) >>= fun () ->
  fails "write" ebadf (fun () -> waiting) >>= fun () -> Lwt_unix.close peer

let close_waits () =
  let writer, peer = pair ~buffer_size:1000 () in
  let contents = pattern 1_000_000 in
  let written = Writer.write writer contents in
  let closed = Writer.close writer in
  fails "a call after close" ebadf (fun () -> Writer.flush writer) >>= fun () ->
  receive_all peer >>= fun received ->
  check bool "all of the earlier call" true (received = contents);
  written >>= fun () ->
  closed >>= fun () -> Lwt_unix.close peer

let tests =
  [
    test_no_leak "all sizes of buffers and writes" sizes;
    test_no_leak "nothing is written early" nothing_early;
    test_no_leak "opening: flags, permissions, errors" opening;
    test_no_leak "concurrent writes keep their order" ordered;
    test_no_leak "errors keep their errno and are final" errors;
    test_no_leak "use after close" use_after_close;
    test_no_leak "short writes are continued" short_writes;
    test_no_leak "a broken pipe" broken_pipe;
    test_no_leak "cancelled flush: every byte is written once" cancelled_flush;
    test_no_leak "the rest of a flush is cancelled" cancelled_rest;
    test_no_leak "abort while writes wait" abort_while_writing;
    test_no_leak "abort waits for the operation in flight" abort_again;
    test_no_leak "close waits for earlier calls" close_waits;
  ]
