(* Programs for Lwt as they are written for its own engines. Each runs in a process of its own, on
   libev (select where Lwt has no libev) and on our engine; what it prints and how it ends must be
   the same. Unit tests of the engine and of the file modules are not here. *)

open Lwt.Infix

let ( let* ) = Lwt.bind
let print fmt = Printf.ksprintf (fun line -> print_string (line ^ "\n"); flush stdout) fmt

let describe = function
  | Unix.Unix_error (error, name, argument) ->
      Printf.sprintf "%s in %s(%s)" (Unix.error_message error) name argument
  | exn -> Printexc.to_string exn

(* Prints how a promise ends. *)
let show name promise =
  Lwt.async (fun () ->
      Lwt.catch
        (fun () -> promise >|= fun text -> print "%s: %s" name text)
        (fun exn ->
          print "%s raised %s" name (describe exn);
          Lwt.return_unit))

let loopback = Unix.ADDR_INET (Unix.inet_addr_loopback, 0)

let listen address =
  let socket = Lwt_unix.socket PF_INET SOCK_STREAM 0 in
  Lwt_unix.setsockopt socket SO_REUSEADDR true;
  let* () = Lwt_unix.bind socket address in
  Lwt_unix.listen socket 128;
  Lwt.return (socket, Lwt_unix.getsockname socket)

let connect address =
  let socket = Lwt_unix.socket PF_INET SOCK_STREAM 0 in
  let* () = Lwt_unix.connect socket address in
  Lwt.return socket

let rec write_all socket text off =
  if off = String.length text then Lwt.return_unit
  else
    let* count = Lwt_unix.write_string socket text off (String.length text - off) in
    write_all socket text (off + count)

let status = function
  | Unix.WEXITED code -> Printf.sprintf "exit %d" code
  | WSIGNALED signal -> Printf.sprintf "signal %d" signal
  | WSTOPPED signal -> Printf.sprintf "stop %d" signal

(* ---- Sockets ------------------------------------------------------------------------------- *)

(* A port forwarder passes half-closes on in both directions. *)
let forwarder () =
  let* origin, origin_address = listen loopback in
  let* front, address = listen loopback in
  let rec accept socket serve =
    let* connection, _ = Lwt_unix.accept socket in
    Lwt.async (fun () -> serve connection);
    accept socket serve
  in
  let accept socket serve =
    Lwt.async (fun () -> Lwt.catch (fun () -> accept socket serve) (fun _ -> Lwt.return_unit))
  in
  let digest text = Printf.sprintf "%d %s" (String.length text) Digest.(to_hex (string text)) in
  accept origin (fun connection ->
      let* text = Lwt_io.read (Lwt_io.of_fd ~mode:Lwt_io.input connection ~close:Lwt.return) in
      let* () = write_all connection (digest text) 0 in
      Lwt_unix.close connection);
  let rec copy source target buffer =
    Lwt_unix.read source buffer 0 (Bytes.length buffer) >>= function
    | 0 ->
        Lwt_unix.shutdown target SHUTDOWN_SEND;
        Lwt.return_unit
    | count ->
        let* () = write_all target (Bytes.sub_string buffer 0 count) 0 in
        copy source target buffer
  in
  accept front (fun connection ->
      let* back = connect origin_address in
      let* () =
        Lwt.join
          [ copy connection back (Bytes.create 4096); copy back connection (Bytes.create 10) ]
      in
      let* () = Lwt_unix.close connection in
      Lwt_unix.close back);
  let* () =
    Fun.flip Lwt_list.iter_p (List.init 50 Fun.id) (fun i ->
        let text = String.init (i * 7001) (fun j -> Char.chr ((i + j) land 255)) in
        let* socket = connect address in
        let* () = write_all socket text 0 in
        Lwt_unix.shutdown socket SHUTDOWN_SEND;
        let* answer = Lwt_io.read (Lwt_io.of_fd ~mode:Lwt_io.input socket) in
        if answer <> digest text then print "%d: %S" i answer;
        Lwt_unix.close socket)
  in
  let* () = Lwt_unix.close front in
  Lwt_unix.close origin

(* Descriptors are closed, aborted and shut down while promises wait for them. *)
let closing () =
  let buffer = Bytes.create 10 and large = Bytes.create 10_000_000 in
  let settle () = Lwt_unix.sleep 0.01 in
  let read socket = Lwt_unix.read socket buffer 0 10 >|= string_of_int in
  let rec write_for_ever socket =
    let* _ = Lwt_unix.write socket large 0 (Bytes.length large) in
    write_for_ever socket
  in
  let pair () = Lwt_unix.socketpair PF_UNIX SOCK_STREAM 0 in
  let* socket, _ = listen loopback in
  show "accept" (Lwt_unix.accept socket >|= fun _ -> "a connection");
  show "accept_n"
    (Lwt_unix.accept_n socket 3 >|= fun (all, exn) ->
     Printf.sprintf "%d %b" (List.length all) (Option.is_some exn));
  let* () = Lwt.pause () in
  let* () = Lwt_unix.close socket in
  let* () = settle () in
  let a, b = pair () in
  show "first read" (read a);
  show "second read" (read a);
  show "wait_read" (Lwt_unix.wait_read a >|= fun () -> "ready");
  let* () = settle () in
  let* () = Lwt_unix.close a in
  let* () = settle () in
  show "the peer's read" (read b);
  let* () = settle () in
  let* () = Lwt_unix.close b in
  let a, b = pair () in
  show "write" (write_for_ever a);
  let* () = settle () in
  Lwt_unix.abort a Exit;
  let* () = settle () in
  show "read after abort" (Lwt.catch (fun () -> read a) Lwt.fail);
  let* () = Lwt_unix.close a in
  let* () = Lwt_unix.close b in
  let a, b = pair () in
  show "write to a peer that closes" (write_for_ever a);
  let* () = settle () in
  let* () = Lwt_unix.close b in
  let* () = settle () in
  let* () = Lwt_unix.close a in
  let* socket, address = listen loopback in
  show "accept with shutdown" (Lwt_unix.accept socket >|= fun _ -> "a connection");
  let* () = Lwt.pause () in
  Lwt_unix.shutdown socket SHUTDOWN_ALL;
  let* () = settle () in
  let* () = Lwt_unix.close socket in
  show "connect to a closed port" (connect address >|= fun _ -> "connected");
  let* () = settle () in
  let a, b = pair () in
  let cancelled = read a in
  show "cancelled" cancelled;
  let* () = Lwt.pause () in
  Lwt.cancel cancelled;
  let* () = write_all b "hello" 0 in
  let* count = Lwt_unix.read a buffer 0 2 in
  let* rest = Lwt_unix.read a buffer 0 10 in
  print "after the cancelled one: %d and %d bytes" count rest;
  let* () = Lwt_unix.close a in
  Lwt_unix.close b

(* ---- Processes, signals, threads ------------------------------------------------------------ *)

let processes () =
  let shell = Lwt_process.shell in
  let lines = String.concat "\n" (List.init 5000 string_of_int) in
  let* text = Lwt_process.pmap (shell "tr 0-9 a-j | sort | uniq") lines in
  print "%s" (Digest.to_hex (Digest.string text));
  let* () =
    Lwt_process.with_process_full
      (shell "cat; echo error >&2; exit 7")
      (fun process ->
        let write () =
          let* () = Lwt_io.write process#stdin (String.make 3_000_000 'x') in
          Lwt_io.close process#stdin
        in
        let* (output, error), () =
          Lwt.both (Lwt.both (Lwt_io.read process#stdout) (Lwt_io.read process#stderr)) (write ())
        in
        let* ended = process#status in
        print "%d %S %s" (String.length output) error (status ended);
        Lwt.return_unit)
  in
  let killed = Lwt_process.open_process_none (shell "exec sleep 100") in
  killed#kill Sys.sigkill;
  let* ended = killed#status in
  print "killed: %s" (status ended);
  let late = Lwt_process.open_process_none ~timeout:0.05 (shell "exec sleep 100") in
  let* ended = late#status in
  print "late: %s" (status ended);
  (* Many SIGCHLD at once. *)
  let* ended =
    Lwt_list.map_p
      (fun i -> Lwt_process.exec (shell (Printf.sprintf "exit %d" i)))
      (List.init 50 Fun.id)
  in
  print "%s" (String.concat ", " (List.map status ended));
  Lwt.return_unit

(* Sends this process a signal while it waits. *)
let signal_later signal =
  let pid = Unix.getpid () in
  match Unix.fork () with
  | 0 ->
      Unix.sleepf 0.03;
      Unix.kill pid signal;
      Unix._exit 0
  | _ -> ()

(* What handlers raise ends Lwt_main.run; the loop runs again and has lost nothing. *)
let signals () =
  let try_run promise =
    match Lwt_main.run promise with
    | () -> print "ended"
    | exception exn -> print "raised %s" (describe exn)
  in
  let for_ever () = fst (Lwt.wait ()) in
  (* Long enough not to end together with a signal: libev then loses it. *)
  let later = Lwt_unix.sleep 1. in
  let a, b = Lwt_unix.socketpair PF_UNIX SOCK_STREAM 0 in
  let read = Lwt_unix.read a (Bytes.create 10) 0 10 in
  Sys.set_signal Sys.sigusr1 (Signal_handle (fun _ -> raise Exit));
  signal_later Sys.sigusr1;
  try_run (for_ever ());
  Sys.catch_break true;
  signal_later Sys.sigint;
  try_run (for_ever ());
  try_run (write_all b "abc" 0 >>= fun () -> read >|= print "read %d");
  try_run (later >|= fun () -> print "later");
  signal_later Sys.sigint;
  let rec spin () = Lwt.pause () >>= spin in
  try_run (spin ());
  let woken, waker = Lwt.wait () in
  Sys.set_signal Sys.sigusr1 (Signal_handle (fun _ -> Lwt.wakeup_later waker ()));
  signal_later Sys.sigusr1;
  try_run woken;
  let woken, waker = Lwt.wait () in
  let id = Lwt_unix.on_signal Sys.sigusr2 (fun _ -> Lwt.wakeup_later waker ()) in
  signal_later Sys.sigusr2;
  try_run woken;
  Lwt_unix.disable_signal_handler id;
  Lwt.async (fun () -> Lwt_unix.sleep 0.001 >>= fun () -> failwith "nobody catches this");
  try_run (Lwt_unix.sleep 10.)

(* The loop runs in one thread after another, and in a forked child, while promises wait. A change
   of thread or process costs neither memory nor descriptors. *)
let threads () =
  let in_thread f = Thread.join (Thread.create f ()) in
  let a, b = Lwt_unix.socketpair PF_UNIX SOCK_STREAM 0 in
  let read = Lwt_unix.read a (Bytes.create 10) 0 10 in
  in_thread (fun () -> Lwt_main.run (Lwt_unix.sleep 0.01));
  in_thread (fun () -> Lwt_main.run (write_all b "abc" 0 >>= fun () -> read >|= print "%d"));
  let squares = List.init 50 (Lwt_preemptive.detach (fun i -> i * i)) in
  print "%d" (List.fold_left ( + ) 0 (Lwt_main.run (Lwt.all squares)));
  let from_thread () = Lwt_preemptive.run_in_main (fun () -> Lwt_unix.sleep 0.001) in
  Lwt_main.run (Lwt_preemptive.detach from_thread ());
  let resident () =
    let ic = open_in "/proc/self/statm" in
    let pages = Scanf.sscanf (input_line ic) "%d %d" (fun _ resident -> resident) in
    close_in ic;
    pages
  in
  let turns n = for _ = 1 to n do in_thread (fun () -> Lwt_main.run (Lwt_unix.sleep 0.)) done in
  turns 20;
  let open_descriptors () = Array.length (Sys.readdir "/proc/self/fd") in
  let descriptors = open_descriptors () and pages = resident () in
  turns 100;
  print "descriptors gained: %d" (open_descriptors () - descriptors);
  print "more than 50 MB gained: %b" (resident () - pages > 12_500);
  match Unix.fork () with
  | 0 ->
      let read = Lwt_unix.read a (Bytes.create 10) 0 10 in
      Lwt_main.run (write_all b "abcd" 0 >>= fun () -> read >|= print "child: %d");
      Unix._exit 3
  | pid -> print "%s" (status (snd (Lwt_main.run (Lwt_unix.waitpid [] pid))))

(* ---- Running them --------------------------------------------------------------------------- *)

(* With the exit code of each. *)
let programs =
  let lwt program () = Lwt_main.run (program ()) in
  [
    ("forwarder", (lwt forwarder, 0)); ("closing", (lwt closing, 0));
    ("processes", (lwt processes, 0)); ("signals", (signals, 2)); ("threads", (threads, 0));
  ]

let install = function
  | "ringway" -> Result.iter_error failwith (Ringway_lwt.Engine.install ())
  | _ -> if Lwt_sys.have `libev then Lwt_engine.set (new Lwt_engine.libev ())

(* What the program prints, to both channels, and how it ends. A program that hangs ends by SIGKILL,
   which no program handles. *)
let outcome engine name =
  let command =
    Filename.quote_command "timeout" ~stdin:"/dev/null"
      [ "-s"; "KILL"; "60"; Sys.executable_name; engine; name ]
  in
  let ic = Unix.open_process_in (command ^ " 2>&1") in
  let output = Buffer.create 1000 in
  (try
     while true do
       Buffer.add_channel output ic 1
     done
   with End_of_file -> ());
  let ended = Unix.close_process_in ic in
  (Buffer.contents output ^ status ended ^ "\n", ended)

let compare_engines name code =
  let expected, ended = outcome "libev" name and got, _ = outcome "ringway" name in
  let same = expected = got && ended = Unix.WEXITED code in
  if same then Printf.printf "%-12s same\n%!" name
  else Printf.printf "%-12s DIFFERS\non libev:\n%son ringway:\n%s%!" name expected got;
  same

let () =
  match Sys.argv with
  | [| _; engine; name |] ->
      Sys.set_signal Sys.sigpipe Signal_ignore;
      install engine;
      fst (List.assoc name programs) ()
  | _ -> (
      match Ringway_lwt.Engine.install () with
      | Error reason ->
          Printf.printf "skipped: programs on the engine: %s\n" reason;
          if Sys.getenv_opt "CI" <> None then exit 1
      | Ok () ->
          Ringway_lwt.Engine.remove ();
          let same = List.map (fun (name, (_, code)) -> compare_engines name code) programs in
          if List.mem false same then exit 1)
