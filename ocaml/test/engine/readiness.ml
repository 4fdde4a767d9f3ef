(* Events, timers and system calls of the engine, without Lwt's own layers. *)

module Engine = Ringway_lwt.Engine
open Harness

let int = Alcotest.(check int)
let bool = Alcotest.(check bool)
let strings = Alcotest.(check (list string))

let nonblocking_pipe () =
  let ((a, b) as pipe) = Unix.pipe ~cloexec:true () in
  Unix.set_nonblock a;
  Unix.set_nonblock b;
  pipe

let socketpair () = Unix.socketpair ~cloexec:true Unix.PF_UNIX Unix.SOCK_STREAM 0

(* ---- Events ------------------------------------------------------------------------------- *)

let test_level_triggered () =
  let ((input, output) as pipe) = nonblocking_pipe () in
  let read = ref [] and buffer = Bytes.create 3 in
  let event =
    Lwt_engine.on_readable input (fun _ -> read := Unix.read input buffer 0 3 :: !read)
  in
  write_all output "0123456789";
  iterate_until (fun () -> List.length !read = 4);
  poll_all ();
  Alcotest.(check (list int)) "reads" [ 3; 3; 3; 1 ] (List.rev !read);
  Lwt_engine.stop_event event;
  close_both pipe

let test_order () =
  let ((input, output) as pipe) = nonblocking_pipe () in
  let calls = ref [] in
  let call name = calls := name :: !calls in
  let second = ref Lwt_engine.fake_event and fourth = ref Lwt_engine.fake_event in
  let once = ref true in
  let first =
    Lwt_engine.on_readable input (fun _ ->
        call "first";
        if !once then begin
          once := false;
          Lwt_engine.stop_event !second;
          fourth := Lwt_engine.on_readable input (fun _ -> call "fourth")
        end)
  in
  second := Lwt_engine.on_readable input (fun _ -> call "second");
  let third = Lwt_engine.on_readable input (fun _ -> call "third") in
  write_all output "x";
  Lwt_engine.iter true;
  strings "stopped and added ones are not called" [ "first"; "third" ] (List.rev !calls);
  calls := [];
  Lwt_engine.iter true;
  strings "next iteration" [ "first"; "third"; "fourth" ] (List.rev !calls);
  List.iter Lwt_engine.stop_event [ first; third; !fourth ];
  calls := [];
  poll_all ();
  strings "all stopped" [] !calls;
  close_both pipe

let test_hang_up () =
  let a, b = socketpair () in
  let readable = ref 0 and writable = ref 0 in
  let events =
    [
      Lwt_engine.on_readable a (fun _ -> incr readable);
      Lwt_engine.on_writable a (fun _ -> incr writable);
    ]
  in
  Lwt_engine.iter true;
  int "not readable" 0 !readable;
  Unix.close b;
  iterate_until (fun () -> !readable > 0);
  let before = !writable in
  Lwt_engine.iter true;
  bool "both, in each iteration" true (!readable > 1 && !writable > before);
  List.iter Lwt_engine.stop_event events;
  Unix.close a;
  (* A pipe without a reader: POLLERR alone. *)
  let input, output = nonblocking_pipe () in
  Unix.close input;
  let woken = ref 0 in
  let event = Lwt_engine.on_readable output (fun _ -> incr woken) in
  iterate_until (fun () -> !woken > 0);
  Lwt_engine.stop_event event;
  Unix.close output

let test_bad_descriptor () =
  let input, output = nonblocking_pipe () in
  close_both (input, output);
  let called = ref 0 in
  let event = Lwt_engine.on_readable input (fun _ -> incr called) in
  iterate_until (fun () -> !called > 0);
  poll_all ();
  int "called once" 1 !called;
  (* A new file with that number, and a new event. *)
  let input', output' = nonblocking_pipe () in
  Alcotest.(check bool) "the same number" true (input = input');
  let event' = Lwt_engine.on_readable input' (fun _ -> called := 10) in
  write_all output' "x";
  iterate_until (fun () -> !called = 10);
  List.iter Lwt_engine.stop_event [ event; event' ];
  close_both (input', output')

let is_readable fd = match Unix.select [ fd ] [] [] 0. with [ _ ], _, _ -> true | _ -> false

let test_close_after_stop () =
  let a, b = socketpair () in
  let event = Lwt_engine.on_readable a ignore in
  Lwt_engine.iter false;
  Lwt_engine.stop_event event;
  Unix.close a;
  (* Without an iteration of the loop. *)
  bool "the peer sees the end" true (is_readable b);
  int "end" 0 (Unix.read b (Bytes.create 1) 0 1);
  Unix.close b

let test_reuse () =
  let a, b = socketpair () in
  let keep = Unix.dup ~cloexec:true a in
  let event = Lwt_engine.on_readable a (fun _ -> Alcotest.fail "was stopped") in
  Lwt_engine.iter false;
  Lwt_engine.stop_event event;
  Unix.close a;
  let input, output = nonblocking_pipe () in
  bool "the same number" true (a = input);
  let called = ref 0 in
  let event = Lwt_engine.on_readable input (fun _ -> incr called) in
  write_all b "to the file that had the number before";
  poll_all ();
  int "another file" 0 !called;
  write_all output "x";
  iterate_until (fun () -> !called > 0);
  Lwt_engine.stop_event event;
  List.iter Unix.close [ b; keep; input; output ]

(* As with Lwt's engines: the events that were not stopped are those of the new file. *)
let test_closed_without_stop () =
  let input, output = nonblocking_pipe () in
  let old_called = ref 0 and called = ref 0 in
  let old_event = Lwt_engine.on_readable input (fun _ -> incr old_called) in
  poll_all ();
  Unix.close input;
  let new_input, new_output = nonblocking_pipe () in
  bool "the same number" true (new_input = input);
  let event = Lwt_engine.on_readable new_input (fun _ -> incr called) in
  poll_all ();
  int "not ready" 0 (!old_called + !called);
  write_all new_output "x";
  iterate_until (fun () -> !called > 0);
  bool "the old event, too" true (!old_called > 0);
  Lwt_engine.stop_event event;
  Lwt_engine.stop_event old_event;
  close_both (new_input, new_output);
  Unix.close output

let test_fake_io () =
  let ((input, _) as pipe) = nonblocking_pipe () in
  let called = ref 0 in
  let event = Lwt_engine.on_readable input (fun _ -> incr called) in
  Lwt_engine.fake_io input;
  int "called" 1 !called;
  Lwt_engine.stop_event event;
  Lwt_engine.fake_io input;
  int "stopped" 1 !called;
  close_both pipe

(* ---- System calls --------------------------------------------------------------------------- *)

let calls () = (Option.get (stats ()).queue).system_calls

let test_one_call () =
  let ((input, output) as pipe) = nonblocking_pipe () in
  let byte = Bytes.create 1 in
  let read = ref 0 in
  let event = Lwt_engine.on_readable input (fun _ -> read := !read + Unix.read input byte 0 1) in
  let timer = Lwt_engine.on_timer 3600. false ignore in
  Lwt_engine.iter false;
  let before = calls () and iterations = (stats ()).iterations in
  for _ = 1 to 100 do
    write_all output "x";
    Lwt_engine.iter true
  done;
  int "iterations" 100 ((stats ()).iterations - iterations);
  int "messages" 100 !read;
  (* A completion that the kernel has made meanwhile needs none. *)
  bool "system calls" true (calls () - before <= 100);
  Lwt_engine.stop_event event;
  Lwt_engine.stop_event timer;
  close_both pipe

let test_no_call () =
  poll_all ();
  let before = calls () in
  for _ = 1 to 100 do
    Lwt_engine.iter false
  done;
  int "nothing to do" 0 (calls () - before)

(* Stopping an event that has fired makes no system call. *)
let test_stop_after_event () =
  let ((input, output) as pipe) = nonblocking_pipe () in
  let called = ref 0 in
  let start () =
    Lwt_engine.on_readable input (fun event ->
        ignore (Unix.read input (Bytes.create 1) 0 1);
        incr called;
        Lwt_engine.stop_event event)
  in
  Lwt_engine.iter false;
  let before = calls () in
  for i = 1 to 50 do
    write_all output "x";
    ignore (start ());
    Lwt_engine.iter true;
    int "called" i !called
  done;
  int "system calls" 50 (calls () - before);
  int "none was cancelled" 0 (stats ()).cancelled;
  close_both pipe

(* ---- Timers ------------------------------------------------------------------------------- *)

(* As Lwt uses them: a timer that has ended is stopped. *)
let after delay f =
  Lwt_engine.on_timer delay false (fun event ->
      Lwt_engine.stop_event event;
      f ())

let test_endless_timers () =
  let fail _ = Alcotest.fail "has ended" in
  let events =
    List.map (fun delay -> Lwt_engine.on_timer delay true fail) [ infinity; nan; 1e300; 1e18; 1e9 ]
  in
  let fired = ref false in
  ignore (after 0.001 (fun () -> fired := true));
  iterate_until (fun () -> !fired);
  poll_all ();
  List.iter Lwt_engine.stop_event events;
  int "none is left" 0 (Lwt_engine.timer_count ())

(* A loop that has a timer and nothing else sleeps: few iterations, although it is long. *)
let test_timer_alone () =
  bool "child" true
    (in_child (fun () ->
         (* Without the event of Lwt's notifications. *)
         Lwt_engine.set ~transfer:false (new Lwt_engine.select);
         install ();
         let fired = ref false in
         ignore (after 0.1 (fun () -> fired := true));
         let before = (stats ()).iterations in
         iterate_until (fun () -> !fired);
         int "nothing was polled" 0 (stats ()).polls;
         bool "few iterations" true ((stats ()).iterations - before <= 3)))

(* ---- Exceptions ----------------------------------------------------------------------------- *)

exception Of_callback

let with_hook f =
  let saved = !Lwt.async_exception_hook and caught = ref 0 in
  (Lwt.async_exception_hook := function Of_callback -> incr caught | exn -> raise exn);
  Fun.protect (fun () -> f caught) ~finally:(fun () -> Lwt.async_exception_hook := saved)

let test_exceptions () =
  with_hook (fun caught ->
      let ((input, output) as pipe) = nonblocking_pipe () in
      let others = ref 0 in
      let events =
        [
          Lwt_engine.on_readable input (fun _ -> raise Of_callback);
          Lwt_engine.on_readable input (fun _ -> incr others);
          Lwt_engine.on_timer 0. true (fun _ -> raise Of_callback);
          Lwt_engine.on_timer 0. true (fun _ -> incr others);
        ]
      in
      write_all output "x";
      Lwt_engine.iter true;
      Lwt_engine.iter true;
      iterate_until (fun () -> !caught >= 4 && !others >= 4);
      List.iter Lwt_engine.stop_event events;
      close_both pipe)

(* Sys.Break ends the iteration; the next one delivers the rest. *)
let test_break () =
  let ((a, b) as p) = nonblocking_pipe () and ((c, d) as q) = nonblocking_pipe () in
  let called = ref [] in
  let raising = ref true in
  let callback fd name _ =
    ignore (Unix.read fd (Bytes.create 1) 0 1);
    called := name :: !called;
    if !raising then begin
      raising := false;
      raise Sys.Break
    end
  in
  let events =
    [ Lwt_engine.on_readable a (callback a "a"); Lwt_engine.on_readable c (callback c "c") ]
  in
  write_all b "x";
  write_all d "x";
  Alcotest.check_raises "raises" Sys.Break (fun () -> Lwt_engine.iter true);
  iterate_until (fun () -> List.length !called = 2);
  strings "each once" [ "a"; "c" ] (List.sort compare !called);
  List.iter Lwt_engine.stop_event events;
  close_both p;
  close_both q

(* ---- Installing and removing ----------------------------------------------------------------- *)

let test_remove () =
  let ((input, output) as pipe) = nonblocking_pipe () in
  let called = ref 0 and timed = ref 0 in
  let others = Lwt_engine.readable_count () in
  let event = Lwt_engine.on_readable input (fun _ -> incr called) in
  let timer = Lwt_engine.on_timer 0.001 true (fun _ -> incr timed) in
  let expect () =
    let called' = !called and timed' = !timed in
    iterate_until (fun () -> !called > called' && !timed > timed')
  in
  write_all output "x";
  for _ = 1 to 5 do
    expect ();
    Engine.remove ();
    bool "removed" false (Engine.installed ());
    bool "explained" true (Engine.explain () <> "");
    expect ();
    install ();
    bool "installed" true (Engine.installed ());
    bool "explained" true (Engine.explain () <> "")
  done;
  expect ();
  bool "twice" true (Engine.install () = Ok ());
  int "events" 1 (Lwt_engine.readable_count () - others);
  Lwt_engine.stop_event event;
  Lwt_engine.stop_event timer;
  Engine.remove ();
  Engine.remove ();
  bool "no statistics" true (Engine.stats () = None);
  close_both pipe

(* The environment forces a backend for the whole program. *)
let test_forced () =
  Engine.remove ();
  Fun.protect
    ~finally:(fun () -> Unix.putenv "RINGWAY_BACKEND" "")
    (fun () ->
      List.iter
        (fun name ->
          Unix.putenv "RINGWAY_BACKEND" name;
          (match Engine.install () with
          | Ok () -> Alcotest.failf "installed with RINGWAY_BACKEND=%s" name
          | Error reason -> Alcotest.(check string) "explained" reason (Engine.explain ()));
          bool "not installed" false (Engine.installed ()))
        [ "threads"; "kaio"; "none" ];
      let message =
        match Ringway.Queue.create () with
        | exception Ringway.Queue.Error { message; _ } -> message
        | _ -> Alcotest.fail "created"
      in
      Alcotest.(check string) "no backend" message (Engine.explain ());
      Unix.putenv "RINGWAY_BACKEND" "uring";
      bool "installed" true (Engine.install () = Ok ()))

(* Another library sets an engine. *)
let test_replaced () =
  let input, output = nonblocking_pipe () in
  let called = ref 0 in
  let event = Lwt_engine.on_readable input (fun _ -> incr called) in
  Lwt_engine.iter false;
  Lwt_engine.set (new Lwt_engine.select);
  bool "not installed" false (Engine.installed ());
  write_all output "x";
  iterate_until (fun () -> !called > 0);
  Lwt_engine.stop_event event;
  (* Its polls have released their files. *)
  Unix.close output;
  Unix.close input

let case name f = Alcotest.test_case name `Quick (with_engine f)

let () =
  where_installed (fun () ->
      Alcotest.run "readiness"
        [
          ( "events",
            [
              case "level-triggered" test_level_triggered;
              case "order" test_order;
              case "hang-up" test_hang_up;
              case "descriptor that is not open" test_bad_descriptor;
              case "close after stop" test_close_after_stop;
              case "descriptor is used again" test_reuse;
              case "closed without a stop" test_closed_without_stop;
              case "fake_io" test_fake_io;
            ] );
          ( "system calls",
            [
              case "one for each iteration" test_one_call;
              case "none without work" test_no_call;
              case "none to stop an event that has fired" test_stop_after_event;
            ] );
          ( "timers",
            [
              case "endless" test_endless_timers;
              case "nothing but a timer" test_timer_alone;
            ] );
          ("exceptions", [ case "of callbacks" test_exceptions; case "Sys.Break" test_break ]);
          ( "engine",
            [
              case "removed and installed" test_remove;
              case "another backend is forced" test_forced;
              case "replaced" test_replaced;
            ] );
        ])
