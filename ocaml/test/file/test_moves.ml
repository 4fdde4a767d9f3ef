(* The loop goes on in another thread, or in a forked child, with operations in flight: they
   survive, every byte is written once, and no descriptor is left open. Most cases are programs of
   their own, since what matters is how a program ends. *)

open Lwt.Infix
module System = Unix
open Ringway_lwt
module Unix = System

let ( let* ) = Lwt.bind
let file name = Filename.concat Way.directory name
let rec pauses n = if n = 0 then Lwt.return_unit else Lwt.pause () >>= fun () -> pauses (n - 1)
let flags = Unix.[ O_WRONLY; O_CREAT; O_TRUNC; O_CLOEXEC ]

(* O_SYNC keeps the write in flight while the loop moves. *)
let slow = Unix.O_SYNC :: flags

(* Each program ends itself: what waits for a program that hangs, or turns for ever, may be gone. *)
let limit_time () = ignore (Unix.alarm 60)

(* ---- Programs ------------------------------------------------------------------------------- *)

let in_thread f =
  let failure = ref None in
  Thread.join (Thread.create (fun () -> try f () with exn -> failure := Some exn) ());
  Option.iter raise !failure

let line = "the last line of the log"

(* A loop in a thread; the program's exit flushes the channel. *)
let log path number =
  in_thread (fun () ->
      Lwt_main.run
        (let* log = Io.open_file ~flags:slow ~mode:Output path in
         let* () = Io.write_line log line in
         pauses number))

(* The same, and the loop still waits when the program ends. With our engine only: libev aborts the
   program. *)
let log_and_wait path number =
  let written = ref false in
  ignore
    (Thread.create
       (fun () ->
         Lwt_main.run
           (let* log = Io.open_file ~flags:slow ~mode:Output path in
            let* () = Io.write_line log line in
            let* () = pauses number in
            written := true;
            fst (Lwt.wait ())))
       ());
  while not !written do
    Thread.delay 0.001
  done;
  Thread.delay (0.005 *. float_of_int (number land 3))

(* Each of several writers continues in one thread after another. *)
let writers path number =
  let count = 32 and lines = 8 in
  let work i =
    let* writer = Writer.open_file ~flags:slow (Printf.sprintf "%s.%d" path i) in
    let rec go n =
      if n = lines then Writer.close writer
      else
        let* () = Writer.write writer (Printf.sprintf "%d %d\n" i n) in
        let* () = Writer.flush writer in
        go (n + 1)
    in
    go 0
  in
  let all = Lwt.join (List.init count work) in
  while Lwt.is_sleeping all do
    in_thread (fun () -> Lwt_main.run (Lwt.choose [ all; pauses (2 + number) ]))
  done

(* A child that is forked while the loop waits in another thread has that thread's mark, and no such
   thread. Its exit runs the loop. *)
let fork_and_exit path _ =
  let child_runs = ref false in
  Lwt_main.at_exit (fun () ->
      if not !child_runs then Lwt.return_unit
      else
        Lwt.bind (Lwt_unix.sleep 0.01) (fun () ->
            let* log = Io.open_file ~flags ~mode:Output path in
            let* () = Io.write_line log line in
            Io.close log));
  let waits = ref false in
  ignore
    (Thread.create
       (fun () ->
         Lwt_main.run
           (let* () = Path.exists path >|= ignore in
            waits := true;
            fst (Lwt.wait ())))
       ());
  while not !waits do
    Thread.delay 0.001
  done;
  Thread.delay 0.02;
  (match Unix.fork () with
  | 0 ->
      limit_time ();
      child_runs := true;
      exit 0
  | child -> if Limits.wait child <> WEXITED 0 then Unix._exit 5);
  Unix._exit 0

let programs =
  [
    ("log", log); ("log and wait", log_and_wait); ("writers", writers);
    ("fork and exit", fork_and_exit);
  ]

let run_program name path number =
  let argument = Printf.sprintf "%s:%s:%d" name path number in
  let pid =
    Unix.create_process Sys.executable_name
      [| Sys.executable_name; argument |]
      Unix.stdin Unix.stdout Unix.stderr
  in
  let status = Limits.wait pid in
  match status with
  | WEXITED 0 -> ()
  | WEXITED n -> Alcotest.failf "%s: exit %d" argument n
  | WSIGNALED n | WSTOPPED n -> Alcotest.failf "%s: signal %d" argument n

let each_pause name check () =
  for number = 0 to 11 do
    let path = file (Printf.sprintf "%s %d" name number) in
    run_program name path number;
    check number path
  done

let check_line number path =
  Alcotest.(check string) (Printf.sprintf "%d pauses" number) (line ^ "\n") (Way.read_file path)

let check_writers _ path =
  for i = 0 to 31 do
    let expected = String.concat "" (List.init 8 (fun n -> Printf.sprintf "%d %d\n" i n)) in
    Alcotest.(check string) "lines" expected (Way.read_file (Printf.sprintf "%s.%d" path i))
  done

(* ---- In this process ------------------------------------------------------------------------ *)

let descriptors () = Array.length (Sys.readdir "/proc/self/fd")

(* An open that waits for a reader, which comes when the loop runs elsewhere. *)
let open_in_flight () =
  let path = file "fifo" in
  Unix.mkfifo path 0o600;
  Lwt_main.run (Lwt.map ignore (Path.stat path));
  let opened = ref (fst (Lwt.wait ())) in
  let rounds = 20 in
  let before = ref 0 in
  for round = 0 to rounds do
    (* The first rounds open what the library keeps. *)
    if round = 4 then before := descriptors ();
    in_thread (fun () ->
        opened := File.openfile path [ O_WRONLY ] 0;
        Lwt_main.run (pauses (round land 3)));
    Alcotest.(check bool) "waits" true (Lwt.is_sleeping !opened);
    let reader = Unix.openfile path [ O_RDONLY; O_NONBLOCK; O_CLOEXEC ] 0 in
    Lwt_main.run (!opened >>= File.close);
    Unix.close reader
  done;
  Alcotest.(check int) "descriptors" !before (descriptors ())

(* A child leaves the writes in flight to its parent, and writes what follows. *)
let forked () =
  for number = 0 to 7 do
    let path = file (Printf.sprintf "forked %d" number) in
    let flags = Unix.[ O_WRONLY; O_CREAT; O_APPEND; O_SYNC; O_CLOEXEC ] in
    let channel, writer =
      Lwt_main.run
        (Lwt.both
           (Io.open_file ~flags ~mode:Output (path ^ ".io"))
           (Writer.open_file ~flags (path ^ ".writer")))
    in
    Lwt_main.run
      (let* () = Io.write channel "parent\n" in
       let* () = Writer.write writer "parent\n" in
       let flushed = Lwt.join [ Io.flush channel; Writer.flush writer ] in
       Lwt.choose [ flushed; pauses (number land 3) ]);
    Limits.in_child (fun () ->
        Lwt_main.run
          (let* () = Io.write channel "child\n" in
           let* () = Writer.write writer "child\n" in
           Lwt.join [ Io.flush channel; Writer.flush writer ]));
    Lwt_main.run (Lwt.join [ Io.close channel; Writer.close writer ]);
    List.iter
      (fun suffix ->
        let text = Way.read_file (path ^ suffix) in
        let lines = List.sort compare (String.split_on_char '\n' text) in
        let count line = List.length (List.filter (( = ) line) lines) in
        Alcotest.(check int) (suffix ^ ": the child's line") 1 (count "child");
        (* What was not in flight yet belongs to both, as in any program that forks. *)
        Alcotest.(check bool) (suffix ^ ": the parent's line") true (count "parent" <= 2);
        if number land 3 > 0 then
          Alcotest.(check int) (suffix ^ ": the parent's line, in flight") 1 (count "parent"))
      [ ".io"; ".writer" ]
  done

let () =
  match Sys.argv with
  | [| _; argument |] when String.contains argument ':' -> (
      match (String.split_on_char ':' argument, Way.set_up ()) with
      | [ name; path; number ], Ok () ->
          limit_time ();
          (List.assoc name programs) path (int_of_string number)
      | _ -> exit 4)
  | _ ->
      Way.run "moves"
        [
          ("flushed at exit", each_pause "log" check_line);
          ( "flushed at exit while the loop waits",
            if Way.is "engine" then each_pause "log and wait" check_line else ignore );
          ( "a fork while the loop waits in another thread",
            if Way.is "engine" then each_pause "fork and exit" check_line else ignore );
          ("one thread after another", each_pause "writers" check_writers);
          ("opens in flight", open_in_flight);
          ("writes in flight in a forked child", forked);
        ]
