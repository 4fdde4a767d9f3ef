(* Files on a file system that is slow, fails or hangs: what waits for it is an operation and not
   the loop, an error of a sync reaches all who waited, and what the kernel does not let go of is
   given to nobody else. *)

open Ringway
open Lwt.Infix
module System = Unix
open Ringway_lwt
module Unix = System

let ( let* ) = Lwt.bind

let outcome p =
  Lwt.try_bind
    (fun () -> p)
    (fun _ -> Lwt.return "ok")
    (function
      | Unix.Unix_error (error, name, _) ->
          Lwt.return (Printf.sprintf "%s: %s" name (Unix.error_message error))
      | exn -> Lwt.return (Printexc.to_string exn))

let eio name = name ^ ": Input/output error"
let strings = Alcotest.(check (list string))

(* Runs in the loop with the path of a file of these contents. *)
let with_file contents f () =
  Hostile.with_mount (fun mount ->
      let path = Filename.concat mount "file" in
      let channel = open_out_bin path in
      output_string channel contents;
      close_out channel;
      Way.lwt (fun () -> f mount path) ())

(* ---- Syncs ---------------------------------------------------------------------------------- *)

(* The first sync has one caller, and the second all others. *)
let syncs_share mount path =
  let* file = File.openfile path [ O_RDWR ] 0 in
  Hostile.set mount "file fsync delay 200";
  let before = Hostile.requests mount "fsync" in
  let* results = Lwt.all (List.init 16 (fun _ -> outcome (File.fdatasync file))) in
  strings "all" (List.init 16 (fun _ -> "ok")) results;
  Alcotest.(check int) "two system calls" 2 (Hostile.requests mount "fsync" - before);
  Hostile.set mount "file fsync fail 5 2";
  let syncs i = if i land 1 = 0 then File.fdatasync file else File.fsync file in
  let* results = Lwt.all (List.init 16 (fun i -> outcome (syncs i))) in
  strings "the error is everybody's"
    (List.init 16 (fun i -> eio (if i land 1 = 0 then "fdatasync" else "fsync")))
    results;
  let* result = outcome (File.fsync file) in
  Alcotest.(check string) "reported" "ok" result;
  File.close file

(* A sync that begins before a write has ended does not count for it. *)
let syncs_cover mount path =
  let* file = File.openfile path [ O_RDWR ] 0 in
  Hostile.set mount "file fsync delay 100";
  let first = File.fsync file in
  let* _ = File.pwrite_string file "x" ~pos:0 0 1 in
  let before = Hostile.requests mount "fsync" in
  let* () = File.fsync file in
  let* () = first in
  Alcotest.(check bool) "one more" true (Hostile.requests mount "fsync" > before);
  File.close file

let rec until_requested mount operation ~before =
  if Hostile.requests mount operation > before then Lwt.return_unit
  else Lwt_unix.sleep 0.01 >>= fun () -> until_requested mount operation ~before

(* A sync that fails may have written the data of those who wait for the next one. *)
let error_for_queued mount path =
  let* file = File.openfile path [ O_RDWR ] 0 in
  Hostile.set mount "file fsync delay 300";
  Hostile.set mount "file fsync fail 5 1";
  let before = Hostile.requests mount "fsync" in
  let first = outcome (File.fsync file) in
  let* () = until_requested mount "fsync" ~before in
  let queued = outcome (File.fdatasync file) in
  let* first = first in
  Alcotest.(check string) "its own" (eio "fsync") first;
  (* The queued one is in flight. *)
  let third = outcome (File.fsync file) in
  let* queued = queued in
  Alcotest.(check string) "inherited" (eio "fdatasync") queued;
  let* third = third in
  Alcotest.(check string) "once" "ok" third;
  File.close file

(* The kernel reports an error once; the caller who would have got it has gone. *)
let cancelled_sync mount path =
  let* file = File.openfile path [ O_RDWR ] 0 in
  Hostile.set mount "file fsync delay 300";
  Hostile.set mount "file fsync fail 5 1";
  let before = Hostile.requests mount "fsync" in
  let sync = File.fsync file in
  let* () = until_requested mount "fsync" ~before in
  Lwt.cancel sync;
  let* result = outcome sync in
  Alcotest.(check string) "cancelled" (Printexc.to_string Lwt.Canceled) result;
  let* result = outcome (File.fdatasync file) in
  Alcotest.(check string) "remembered" (eio "fdatasync") result;
  let* result = outcome (File.fdatasync file) in
  Alcotest.(check string) "once" "ok" result;
  File.close file

(* Closing waits for the syncs that have not begun. *)
let close_with_syncs mount path =
  let* file = File.openfile path [ O_RDWR ] 0 in
  Hostile.set mount "file fsync delay 100";
  let syncs = List.init 3 (fun _ -> outcome (File.fsync file)) in
  let* () = File.close file in
  let* results = Lwt.all syncs in
  strings "all" [ "ok"; "ok"; "ok" ] results;
  Lwt.return_unit

(* ---- The loop does not wait ----------------------------------------------------------------- *)

(* Each server's answer takes longer than the loop may stand still. *)
let server = 1.2

let does_not_wait name rules f mount path =
  List.iter (Hostile.set mount) rules;
  let* longest = Pause.longest (fun () -> f mount path) in
  Hostile.set mount "clear";
  Printf.printf "%s: %.3f s\n%!" name longest;
  Alcotest.(check bool) (name ^ ": the loop goes on") true (longest < server /. 2.);
  Lwt.return_unit

let slow operation = Printf.sprintf "file %s delay %.0f" operation (server *. 1000.)

let file_functions _ path =
  let* file = File.openfile path [ O_RDWR ] 0 in
  let* length = File.lseek file 0 SEEK_END in
  Alcotest.(check int) "length" 8 length;
  let* stats = File.stat file in
  Alcotest.(check int) "size" 8 stats.st_size;
  File.close file

let unix_functions _ path =
  let* fd = Ringway_lwt.Unix.openfile path [ O_RDWR ] 0 in
  let* length = Ringway_lwt.Unix.lseek fd 0 SEEK_END in
  Alcotest.(check int) "length" 8 length;
  let* () = Ringway_lwt.Unix.close fd in
  (* One that Lwt_unix has opened: its kind is found out at its first use. *)
  let* fd = Lwt_unix.openfile path [ O_RDWR ] 0 in
  let* position = Ringway_lwt.Unix.lseek fd 3 SEEK_SET in
  Alcotest.(check int) "position" 3 position;
  Ringway_lwt.Unix.close fd

(* While a write at its position waits for the server, also for others who have the open file. *)
let held_position mount path =
  let fd = Unix.openfile path [ O_RDWR; O_CLOEXEC ] 0 in
  let other = Unix.dup ~cloexec:true fd in
  let before = Hostile.requests mount "write" in
  let writer = Thread.create (fun () -> ignore (Unix.write_substring fd "c" 0 1)) () in
  (* Its position is taken. *)
  let* () = until_requested mount "write" ~before in
  let channel = Ringway_lwt.Unix.of_unix_file_descr ~blocking:true ~set_flags:false other in
  let file = File.of_unix_file_descr (Unix.dup ~cloexec:true fd) in
  let* position = File.lseek file 3 SEEK_SET in
  Alcotest.(check int) "set" 3 position;
  let* position = Ringway_lwt.Unix.lseek channel 1 SEEK_CUR in
  Alcotest.(check int) "moved" 4 position;
  let bytes = Bytes.create 2 in
  let* n = File.read_bytes file bytes 0 2 in
  Alcotest.(check (pair int string)) "read" (2, "en") (n, Bytes.to_string bytes);
  Thread.join writer;
  Unix.close fd;
  let* () = File.close file in
  Ringway_lwt.Unix.close channel

let channels _ path =
  let* length = Io.with_file ~mode:Input path Io.length in
  Alcotest.(check int64) "length" 8L length;
  let* reader = Reader.open_file path in
  Reader.close reader

(* Opens that come too late are closed again. *)
let late_opens _ path =
  let opening = List.init 4 (fun _ -> Io.open_file ~mode:Input path) in
  let* () = Lwt_unix.sleep 0.05 in
  List.iter Lwt.cancel opening;
  let* () = Lwt_unix.sleep (2.5 *. server) in
  Lwt.return_unit

(* A channel that is closed while its file's server is asked for the length does not seek in the
   file that has got its descriptor. *)
let close_during_length mount path =
  Hostile.set mount (slow "getattr");
  let* channel = Io.open_file ~mode:Input path in
  let length = outcome (Io.length channel) in
  let* () = Lwt_unix.sleep 0.1 in
  let* () = Io.close channel in
  let open_other _ =
    let fd = Unix.openfile Sys.executable_name [ O_RDONLY; O_CLOEXEC ] 0 in
    ignore (Unix.lseek fd 3 SEEK_SET);
    fd
  in
  let others = List.init 8 open_other in
  let* length = length in
  let positions = List.map (fun fd -> Unix.lseek fd 0 SEEK_CUR) others in
  List.iter Unix.close others;
  Alcotest.(check (list int)) "positions" (List.init 8 (fun _ -> 3)) positions;
  Alcotest.(check string) "length" "lseek: Bad file descriptor" length;
  Lwt.return_unit

(* ---- Transfers ------------------------------------------------------------------------------ *)

(* A device that accepts no more bytes, without an error. *)
let nothing_written mount path =
  Hostile.set mount "file direct on";
  Hostile.set mount "file write short 0";
  let no_space = "write: No space left on device" in
  let check name writer =
    let* () = Writer.write writer "text" in
    let* result = outcome (Writer.flush writer) in
    Alcotest.(check string) (name ^ ": flush") no_space result;
    let* result = outcome (Writer.write writer "more") in
    Alcotest.(check string) (name ^ ": final") no_space result;
    Writer.abort writer
  in
  let large name writer =
    let* result = outcome (Writer.write_buffer writer (Buffer.create 100_000)) in
    Alcotest.(check string) (name ^ ": write_buffer") no_space result;
    Writer.abort writer
  in
  let file () = Writer.open_file ~flags:[ O_WRONLY; O_CLOEXEC ] path in
  let connection () =
    let fd = Unix.openfile path [ O_WRONLY; O_CLOEXEC ] 0 in
    Writer.of_connection (Lwt_unix.of_unix_file_descr ~blocking:true ~set_flags:false fd)
  in
  let* writer = file () in
  let* () = check "file" writer in
  let* writer = file () in
  let* () = large "file" writer in
  let* () = check "connection" (connection ()) in
  let* () = large "connection" (connection ()) in
  let* channel = Io.open_file ~flags:[ O_WRONLY; O_CLOEXEC ] ~mode:Output path in
  let* () = Io.write channel "text" in
  let* result = outcome (Io.flush channel) in
  Alcotest.(check string) "channel" no_space result;
  let* (_ : string) = outcome (Io.abort channel) in
  Hostile.set mount "clear";
  Lwt.return_unit

let contents = String.init 100_000 (fun i -> Char.chr ((i * 7919 / 13) land 255))

(* Files whose size is unknown, and whose reads are short, are read whole. *)
let odd_sizes mount path =
  let check name =
    let* text = Io.with_file ~mode:Input path Io.read in
    Alcotest.(check bool) (name ^ ": channel") true (text = contents);
    let* file = File.openfile path [ O_RDONLY ] 0 in
    let bytes = Bytes.create (String.length contents) in
    let* () = File.pread_exactly_bytes file bytes ~pos:0 0 (Bytes.length bytes) in
    Alcotest.(check bool) (name ^ ": pread_exactly") true (Bytes.to_string bytes = contents);
    let* () = File.close file in
    let* text =
      Reader.with_file path (fun reader ->
          let bytes = Bytes.create (String.length contents) in
          Reader.read_exactly reader bytes >|= function
          | `Ok -> Bytes.to_string bytes
          | `Eof n -> Printf.sprintf "the end after %d bytes" n)
    in
    Alcotest.(check bool) (name ^ ": reader") true (text = contents);
    let* file = File.openfile ~direct:true path [ O_RDONLY ] 0 in
    (* Blocks beyond the end, since the length of a direct read is one of whole blocks. *)
    let buffer = Buffer.create_aligned 131_072 in
    let* result = outcome (File.pread_exactly file buffer ~pos:0 0 131_072) in
    Alcotest.(check string) (name ^ ": the end") (Printexc.to_string End_of_file) result;
    Alcotest.(check bool)
      (name ^ ": direct") true
      (Buffer.to_string (Buffer.sub buffer 0 (String.length contents)) = contents);
    let* () = File.close file in
    Lwt.return_unit
  in
  let* () = check "as it is" in
  Hostile.set mount "file direct on";
  Hostile.set mount "file size 0";
  let* () = check "size 0" in
  Hostile.set mount "file size 4096";
  let* () = check "a placeholder" in
  Hostile.set mount "file size real";
  Hostile.set mount "file read short 1000";
  let* () = check "short reads" in
  Hostile.set mount "file write short 1000";
  let* () = Io.with_file ~mode:Output path (fun channel -> Io.write channel contents) in
  check "short writes"


(* ---- What does not end ---------------------------------------------------------------------- *)

let frozen_read backend () =
  Hostile.with_mount (fun mount ->
      let path = Filename.concat mount "file" in
      let channel = open_out_bin path in
      output_string channel (String.make 4096 'f');
      close_out channel;
      Hostile.set mount "file read freeze";
      let fd = Unix.openfile path [ O_RDONLY; O_CLOEXEC ] 0 in
      let queue = Queue.create ~backend ~close_wait_ms:200 () in
      let frozen =
        Queue.push queue (Operation.read fd (Buffer.create 4096) ~off:0 ~len:4096 ~pos:0)
      in
      let null = Unix.openfile "/dev/null" [ O_RDONLY; O_CLOEXEC ] 0 in
      let opened =
        Queue.push queue (Operation.openat "/dev/null" ~flags:0 ~perm:0)
      in
      Queue.wait queue ~min:1 ~timeout_ns:(-1);
      while Hostile.requests mount "read" = 0 do
        Unix.sleepf 0.01
      done;
      Alcotest.(check int) "before" 0 (Queue.unfinished queue);
      let fates = Queue.close_reporting queue in
      Alcotest.(check int) "reported" 2 (List.length fates);
      Alcotest.(check (option int)) "unknown" None (List.assoc frozen fates);
      Alcotest.(check int) "unfinished" 1 (Queue.unfinished queue);
      (match List.assoc opened fates with
      | Some result when result >= 0 -> Unix.close (Operation.descriptor_of_result result)
      | _ -> Alcotest.fail "the open has ended");
      Alcotest.(check int) "again" 0 (List.length (Queue.close_reporting queue));
      Unix.close null;
      Hostile.set mount "file read thaw";
      Unix.close fd)

(* Its buffer goes to nobody, its descriptor stays open, and those who wait are told. *)
let unfinished mount path =
  let backend = List.hd (Way.backends ()) in
  let previous = if Way.is "engine" then Some (Dispatcher.current ()) else None in
  let dispatcher = Dispatcher.create (Queue.create ~backend ~close_wait_ms:200 ()) in
  Dispatcher.set_current (Some dispatcher);
  Dispatcher.attach dispatcher;
  let module Pool = Ringway_lwt__Buffer_pool in
  let size = 65536 in
  let buffers = List.init 3 (fun _ -> Pool.take size) in
  List.iter Pool.give buffers;
  let* file = File.openfile path [ O_RDONLY ] 0 in
  let* channel = Io.open_file ~mode:Input path in
  Hostile.set mount "file read freeze";
  let before = Hostile.requests mount "read" in
  let bytes = Bytes.make size 'p' in
  let read = outcome (File.pread_bytes file bytes ~pos:0 0 size) in
  let line = outcome (Io.read_line channel) in
  let* () = until_requested mount "read" ~before in
  Dispatcher.abandon dispatcher;
  Dispatcher.set_current previous;
  let* read = read in
  Alcotest.(check string) "told" (eio "pread") read;
  let* line = line in
  Alcotest.(check string) "the channel is told" (eio "read") line;
  let* again = outcome (Io.read_line channel) in
  Alcotest.(check string) "and does not read again" (eio "read") again;
  let* closed = outcome (File.close file) in
  Alcotest.(check string) "close tells" (eio "close") closed;
  let* closed = outcome (Io.close channel) in
  Alcotest.(check string) "close of the channel tells" (eio "close") closed;
  let taken = List.init 3 (fun _ -> Pool.take size) in
  let known = List.filter (fun buffer -> List.memq buffer buffers) taken in
  Alcotest.(check int) "two of the three buffers" 2 (List.length known);
  Hostile.set mount "file read thaw";
  Lwt.return_unit

let () =
  let case ?(contents = "contents") name f = (name, with_file contents f) in
  Way.run "hostile"
    ([
       case "syncs share" syncs_share;
       case "syncs cover earlier writes" syncs_cover;
       case "an error is also that of the queued syncs" error_for_queued;
       case "a cancelled sync" cancelled_sync;
       case "close with syncs" close_with_syncs;
       case "a slow getattr, File" (does_not_wait "File" [ slow "getattr" ] file_functions);
       case "a slow getattr, Unix" (does_not_wait "Unix" [ slow "getattr" ] unix_functions);
       case "a slow getattr, Io" (does_not_wait "Io" [ slow "getattr" ] channels);
       case "a held position" (does_not_wait "position" [ slow "write" ] held_position);
       case "close during length" close_during_length;
       case "nothing is written" nothing_written;
       case ~contents "odd sizes" odd_sizes;
       case "slow closes of late opens"
         (does_not_wait "late opens" [ slow "open"; slow "flush" ] late_opens);
     ]
    @ List.map
        (fun backend -> ("a frozen read", frozen_read backend))
        (Way.backends ())
    @ [ case ~contents "what does not end" unfinished ])
