(* What concerns the whole process: signals, forks, threads, domains, failures of the ring, and the
   file operations that are in flight then. *)

open Lwt.Syntax
module Engine = Ringway_lwt.Engine
module File = Ringway_lwt.File
module Dispatcher = Ringway_lwt.Dispatcher

(* Not a public module. *)
module Promise = Ringway_lwt__Promise
open Harness

let int = Alcotest.(check int)
let bool = Alcotest.(check bool)

let pipe () = Lwt_unix.pipe ~cloexec:true ()

let close_pipe (input, output) =
  let* () = Lwt_unix.close input in
  Lwt_unix.close output

(* ---- Signals ------------------------------------------------------------------------------ *)

let with_handler behaviour f =
  let saved = Sys.signal Sys.sigvtalrm behaviour in
  Fun.protect f ~finally:(fun () -> Sys.set_signal Sys.sigvtalrm saved)

(* SIGVTALRM in a moment, when the loop most likely waits. *)
let signal_soon () =
  let pid = Unix.getpid () in
  match Unix.fork () with
  | 0 ->
      Unix.sleepf 0.05;
      Unix.kill pid Sys.sigvtalrm;
      Unix._exit 0
  | child -> child

let test_signal () =
  let handled = ref false in
  with_handler
    (Sys.Signal_handle (fun _ -> handled := true))
    (fun () ->
      let child = signal_soon () in
      (* Nothing else ends these waits. *)
      iterate_until (fun () -> !handled);
      ignore (Unix.waitpid [] child))

exception Of_handler

let test_raising_handler () =
  let input, output = Lwt_main.run (Lwt.return (pipe ())) in
  let buffer = Bytes.create 5 in
  let read = Lwt_unix.read input buffer 0 5 in
  let fifo_read, fifo_write = Unix.pipe ~cloexec:true () in
  let file = Ringway.Buffer.create 4 in
  let file_read =
    Promise.run "read" ""
      (Ringway.Operation.read fifo_read file ~off:0 ~len:4 ~pos:Ringway.Operation.current_position)
      Fun.id
  in
  with_handler
    (Sys.Signal_handle (fun _ -> raise Of_handler))
    (fun () ->
      for _ = 1 to 3 do
        let child = signal_soon () in
        Alcotest.check_raises "Lwt_main.run raises" Of_handler (fun () ->
            ignore (Lwt_main.run read));
        ignore (Unix.waitpid [] child)
      done);
  bool "installed" true (Engine.installed ());
  let written = Lwt_unix.write_string output "hello" 0 5 in
  write_all fifo_write "file";
  int "written" 5 (Lwt_main.run written);
  int "read" 5 (Lwt_main.run read);
  int "file" 4 (Lwt_main.run file_read);
  Lwt_main.run (close_pipe (input, output));
  close_both (fifo_read, fifo_write)

(* ---- Fork --------------------------------------------------------------------------------- *)

(* Sockets, timers and files in the loop of this process. Without jobs for Lwt's threads, which a
   child of Unix.fork does not have. *)
let works () =
  Lwt_main.run
    (let input, output = pipe () in
     let buffer = Bytes.create 4 in
     let read = Lwt_unix.read input buffer 0 4 in
     let* () = Lwt_unix.sleep 0.001 in
     let* _ = Lwt_unix.write_string output "ping" 0 4 in
     let* n = read in
     int "read" 4 n;
     let* file = File.openfile "/proc/self/exe" [ Unix.O_RDONLY ] 0 in
     let block = Ringway.Buffer.create 4 in
     let* n = File.pread file block ~pos:0 0 4 in
     int "file" 4 n;
     Alcotest.(check char) "ELF" 'E' block.{1};
     let* () = File.close file in
     (* Lwt stops events after a pause. *)
     let* () = Lwt.pause () in
     close_both (Lwt_unix.unix_file_descr input, Lwt_unix.unix_file_descr output);
     Lwt.return_unit)

let test_fork () =
  let input, output = pipe () in
  let buffer = Bytes.create 1 in
  let read = Lwt_unix.read input buffer 0 1 in
  Lwt_engine.iter false;
  let child_works fork =
    match fork () with
    | 0 ->
        ignore (Unix.alarm 60);
        let code =
          match
            works ();
            (* The event of before the fork, which the parent has, too. *)
            int "written" 1 (Lwt_main.run (Lwt_unix.write_string output "c" 0 1));
            int "read" 1 (Lwt_main.run read);
            bool "installed" true (Engine.installed ());
            bool "a ring of its own" true ((stats ()).rings >= 2)
          with
          | () -> 0
          | exception exn ->
              prerr_endline ("in the child: " ^ Printexc.to_string exn);
              1
        in
        Unix._exit code
    | pid -> bool "child" true (snd (Unix.waitpid [] pid) = Unix.WEXITED 0)
  in
  works ();
  child_works Lwt_unix.fork;
  works ();
  child_works Unix.fork;
  works ();
  int "the parent has kept its ring" 1 (stats ()).rings;
  int "written" 1 (Lwt_main.run (Lwt_unix.write_string output "p" 0 1));
  int "read" 1 (Lwt_main.run read);
  Lwt_main.run (close_pipe (input, output))

(* A file operation of the parent is cancelled in the child, once. *)
let test_fork_in_flight () =
  let input, output = Unix.pipe ~cloexec:true () in
  let buffer = Ringway.Buffer.create 4 in
  let ended = ref 0 in
  let read =
    Lwt.finalize
      (fun () ->
        Promise.run "read" ""
          (Ringway.Operation.read input buffer ~off:0 ~len:4
             ~pos:Ringway.Operation.current_position)
          Fun.id)
      (fun () ->
        incr ended;
        Lwt.return_unit)
  in
  Lwt_engine.iter false;
  bool "child" true
    (in_child (fun () ->
         Alcotest.check_raises "in the child" Lwt.Canceled (fun () -> ignore (Lwt_main.run read));
         works ();
         int "once" 1 !ended));
  write_all output "data";
  int "in the parent" 4 (Lwt_main.run read);
  int "once" 1 !ended;
  close_both (input, output)

(* ---- Threads and domains -------------------------------------------------------------------- *)

let in_thread f =
  let failure = ref None in
  Thread.join (Thread.create (fun () -> try f () with exn -> failure := Some exn) ());
  Option.iter raise !failure

let moves run_elsewhere () =
  let input, output = pipe () in
  let buffer = Bytes.create 1 in
  let read () = Lwt_unix.read input buffer 0 1 in
  let write () = Lwt_unix.write_string output "x" 0 1 in
  let first = read () in
  Lwt_engine.iter false;
  works ();
  run_elsewhere (fun () ->
      works ();
      int "written" 1 (Lwt_main.run (write ()));
      int "armed by the other thread" 1 (Lwt_main.run first));
  let second = read () in
  works ();
  int "written" 1 (Lwt_main.run (write ()));
  int "armed in between" 1 (Lwt_main.run second);
  run_elsewhere works;
  run_elsewhere works;
  works ();
  int "one ring" 1 (stats ()).rings;
  Lwt_main.run (close_pipe (input, output))

let test_domain () =
  match Spawn.in_domain with
  | None -> skip ~expected:true "OCaml 4 has no domains"
  | Some in_domain -> moves in_domain ()

(* ---- Failures ------------------------------------------------------------------------------- *)

(* Rings that fail: their descriptors become another file. *)
let break_rings () =
  let null = Unix.openfile "/dev/null" [ Unix.O_RDWR; Unix.O_CLOEXEC ] 0 in
  let is_ring number =
    match Unix.readlink ("/proc/self/fd/" ^ number) with
    | target -> target = "anon_inode:[io_uring]"
    | exception Unix.Unix_error _ -> false
  in
  let rings = List.filter is_ring (Array.to_list (Sys.readdir "/proc/self/fd")) in
  bool "there is a ring" true (rings <> []);
  List.iter
    (fun number ->
      Unix.dup2 ~cloexec:true null
        (Ringway.Operation.descriptor_of_result (int_of_string number)))
    rings;
  Unix.close null

let test_ring_fails () =
  bool "child" true
    (in_child (fun () ->
         let input, output = pipe () in
         let buffer = Bytes.create 1 in
         let read = Lwt_unix.read input buffer 0 1 in
         let fifo_read, _fifo_write = Unix.pipe ~cloexec:true () in
         let file = Ringway.Buffer.create 4 in
         works ();
         let file_read =
           Promise.run "read" ""
             (Ringway.Operation.read fifo_read file ~off:0 ~len:4
                ~pos:Ringway.Operation.current_position)
             Fun.id
         in
         break_rings ();
         Lwt_main.run (Lwt_unix.sleep 0.001);
         bool "removed" false (Engine.installed ());
         bool "explained" true (String.length (Engine.explain ()) > String.length "not installed");
         (match Lwt_main.run file_read with
         | _ -> Alcotest.fail "the file operation has succeeded"
         | exception (Unix.Unix_error (Unix.EIO, _, _) | Lwt.Canceled) -> ());
         int "written" 1 (Lwt_main.run (Lwt_unix.write_string output "x" 0 1));
         int "the event was transferred" 1 (Lwt_main.run read);
         works ()))

(* ---- Removing while file operations are in flight -------------------------------------------- *)

let test_remove_in_flight () =
  let input, output = Unix.pipe ~cloexec:true () in
  let buffer = Ringway.Buffer.create 4 in
  let read () =
    Promise.run "read" ""
      (Ringway.Operation.read input buffer ~off:0 ~len:4 ~pos:Ringway.Operation.current_position)
      Fun.id
  in
  let first = read () in
  Lwt_engine.iter false;
  Engine.remove ();
  works ();
  write_all output "data";
  int "ends under Lwt's engine" 4 (Lwt_main.run first);
  let second = read () in
  Lwt_main.run (Lwt.pause ());
  install ();
  works ();
  write_all output "data";
  int "ends under ours" 4 (Lwt_main.run second);
  close_both (input, output)

(* What ends while the engine goes, and starts something in its turn: a timer that would be lost
   with the engine, and operations that would find no dispatcher, or one of a loop that is gone. *)
let test_remove_goes_on () =
  let input, output = Unix.pipe ~cloexec:true () in
  let file = File.of_unix_file_descr input in
  let buffer = Ringway.Buffer.create 4 in
  let read =
    let* n = File.read file buffer 0 4 in
    let* () = Lwt_unix.sleep 0.001 in
    let* more = File.read file buffer 0 4 in
    Lwt.return (n + more)
  in
  Lwt_engine.iter false;
  write_all output "data";
  Engine.remove ();
  bool "no callback in remove" true (Lwt.is_sleeping read);
  write_all output "more";
  int "both" 8 (Lwt_main.run read);
  Lwt_main.run (File.close file);
  Unix.close output

(* In a continuation, as a program does it: the second sync starts when the first one ends, and the
   second write of a flush when the first one does. *)
let test_remove_in_continuation () =
  let path = Filename.temp_file "ringway" ".remove" in
  Lwt_main.run
    (let* file = File.openfile path [ Unix.O_RDWR ] 0 in
     let* () = File.write_exactly_string file (String.make 8192 'x') 0 8192 in
     let first = File.fsync file in
     let second = File.fsync file in
     let* writer = Ringway_lwt.Writer.open_file ~buffer_size:4_000_000 (path ^ ".writer") in
     let* () = Ringway_lwt.Writer.write writer (String.make 4_000_000 'x') in
     let flushed = Ringway_lwt.Writer.flush writer in
     let* () = Lwt.pause () in
     let* () = Lwt.pause () in
     Unix.sleepf 0.05;
     Engine.remove ();
     let* () = first in
     let* () = second in
     let* () = flushed in
     let* () = Ringway_lwt.Writer.close writer in
     File.close file);
  int "flushed" 4_000_000 (Unix.stat (path ^ ".writer")).st_size;
  List.iter Sys.remove [ path; path ^ ".writer" ]

(* ---- Installing while the loop of another engine runs --------------------------------------- *)

(* Descriptors of the epoll instances of libev. *)
let epolls () =
  let is_epoll number =
    match Unix.readlink ("/proc/self/fd/" ^ number) with
    | target -> target = "anon_inode:[eventpoll]"
    | exception Unix.Unix_error _ -> false
  in
  List.length (List.filter is_epoll (Array.to_list (Sys.readdir "/proc/self/fd")))

(* Callbacks of libev that resolve a promise. dune lets malloc overwrite what is freed. *)
let installs_in event () =
  Engine.remove ();
  let before = epolls () in
  let others = List.init 20 (fun _ -> Lwt_unix.sleep 0.0100001) in
  Lwt_main.run
    (let* () = event () in
     install ();
     let* () = Lwt_unix.sleep 0.001 in
     Lwt.join others);
  bool "the engine of before is destroyed" true (before = 0 || epolls () < before);
  works ()

let timer () = Lwt_unix.sleep 0.01

let socket () =
  let a, b = Lwt_unix.socketpair ~cloexec:true Unix.PF_UNIX Unix.SOCK_STREAM 0 in
  Lwt.async (fun () ->
      let* () = Lwt_unix.sleep 0.001 in
      Lwt.map ignore (Lwt_unix.write_string b "x" 0 1));
  let* () = Lwt_unix.wait_read a in
  close_pipe (a, b)

let job () = Lwt_unix.access "/proc/self/exe" [ Unix.R_OK ]
let file () = Lwt.map ignore (Ringway_lwt.Path.stat "/proc/self/exe")

(* Started and not submitted when the engine goes. *)
let test_remove_unsubmitted () =
  let file = Lwt_main.run (File.openfile "/proc/self/exe" [ Unix.O_RDONLY ] 0) in
  let buffer = Ringway.Buffer.create 4 in
  let read = Promise.run "nop" "" Ringway.Operation.nop Fun.id in
  Engine.remove ();
  int "result" 0 (Lwt_main.run read);
  let read = File.pread file buffer ~pos:0 0 4 in
  install ();
  int "result" 4 (Lwt_main.run read);
  Lwt_main.run (File.close file)

let case name f = Alcotest.test_case name `Quick (with_engine f)

let () =
  where_installed (fun () ->
      Alcotest.run "process"
        [
          ( "signals",
            [
              case "a handler runs during the wait" test_signal;
              case "a handler raises" test_raising_handler;
            ] );
          ("fork", [ case "works in the child" test_fork; case "in flight" test_fork_in_flight ]);
          ( "threads",
            [
              case "one after another" (moves in_thread);
            ] );
          ("failures", [ case "the ring fails" test_ring_fails ]);
          ( "removing",
            [
              case "operations in flight" test_remove_in_flight;
              case "operations not submitted" test_remove_unsubmitted;
              case "operations that start others" test_remove_goes_on;
              case "in a continuation" test_remove_in_continuation;
            ] );
          ( "installing in a callback",
            [
              case "of a timer" (installs_in timer);
              case "of a socket" (installs_in socket);
              case "of a job" (installs_in job);
              case "of a file" (installs_in file);
            ] );
          (* The last, because a process that has had domains cannot fork. *)
          ("domains", [ case "one after another" test_domain ]);
        ])
