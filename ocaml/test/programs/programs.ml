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

let open_descriptors () = Array.length (Sys.readdir "/proc/self/fd")
let tasks n f = Lwt_list.iter_p f (List.init n Fun.id)

(* ---- Sockets ------------------------------------------------------------------------------- *)

(* 30 clients, of which 10 reset their connections and 5 close them; the others send 10 lines each,
   which the server sends to all. *)
let chat () =
  let clients = Hashtbl.create 30 and changed = Lwt_condition.create () and gone = ref 0 in
  let rec until condition =
    if condition () then Lwt.return_unit
    else Lwt_condition.wait changed >>= fun () -> until condition
  in
  let tell line oc =
    Lwt.catch
      (fun () -> Lwt_io.write_line oc line >>= fun () -> Lwt_io.flush oc)
      (fun _ -> Lwt.return_unit)
  in
  let rec serve ic =
    Lwt_io.read_line_opt ic >>= function
    | None -> Lwt.return_unit
    | Some line ->
        let all = Hashtbl.fold (fun _ oc all -> oc :: all) clients [] in
        Lwt_list.iter_p (tell line) all >>= fun () -> serve ic
  in
  let client address (ic, oc) =
    Hashtbl.replace clients address oc;
    Lwt_condition.broadcast changed ();
    Lwt.finalize
      (fun () -> Lwt.catch (fun () -> serve ic) (fun _ -> Lwt.return_unit))
      (fun () ->
        Hashtbl.remove clients address;
        incr gone;
        Lwt_condition.broadcast changed ();
        Lwt.return_unit)
  in
  let* socket, address = listen loopback in
  let* () = Lwt_unix.close socket in
  let* server = Lwt_io.establish_server_with_client_address address client in
  let* sockets = Lwt_list.map_s (fun _ -> connect address) (List.init 30 Fun.id) in
  let* () = until (fun () -> Hashtbl.length clients = 30) in
  let* () =
    Lwt_list.iteri_p
      (fun i socket ->
        if i < 10 then Lwt_unix.setsockopt_optint socket SO_LINGER (Some 0);
        if i < 15 then Lwt_unix.close socket else Lwt.return_unit)
      sockets
  in
  let* () = until (fun () -> !gone = 15) in
  let talk i socket =
    let ic = Lwt_io.of_fd ~mode:Lwt_io.input socket ~close:Lwt.return in
    let oc = Lwt_io.of_fd ~mode:Lwt_io.output socket ~close:Lwt.return in
    let* () = Lwt_list.iter_s (Lwt_io.write_line oc) (List.init 10 (Printf.sprintf "%d %d" i)) in
    let* () = Lwt_io.flush oc in
    let* lines = Lwt_list.map_s (fun _ -> Lwt_io.read_line ic) (List.init 150 Fun.id) in
    let lines = String.concat "\n" (List.sort compare lines) in
    Lwt.return (Printf.sprintf "%d: %s" i (Digest.to_hex (Digest.string lines)))
  in
  let live = List.filteri (fun i _ -> i >= 15) sockets in
  let* answers = Lwt_list.mapi_p (fun i socket -> talk (15 + i) socket) live in
  List.iter (print "%s") answers;
  let* () = Lwt_list.iter_p Lwt_unix.close live in
  let* () = Lwt_io.shutdown_server server in
  until (fun () -> !gone = 30)

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
    tasks 50 (fun i ->
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

(* A server starts again on its port at once, without SO_REUSEADDR; its clients leave no connection
   behind. *)
let restart () =
  let* socket, address = listen loopback in
  let* () = Lwt_unix.close socket in
  let rec go n =
    if n = 0 then Lwt.return_unit
    else
      let socket = Lwt_unix.socket PF_INET SOCK_STREAM 0 in
      let* () = Lwt_unix.bind socket address in
      Lwt_unix.listen socket 5;
      let accepted = Lwt_unix.accept socket in
      let* () = Lwt.pause () in
      let* () = Lwt.pause () in
      let* () = Lwt_unix.close socket in
      let* () =
        Lwt.catch
          (fun () -> accepted >|= fun _ -> print "accepted")
          (fun exn ->
            if n = 1 then print "%s" (describe exn);
            Lwt.return_unit)
      in
      go (n - 1)
  in
  go 50

(* Numbers of descriptors are used again at once, and duplicates wait too. *)
let duplicates () =
  let buffer = Bytes.create 100 in
  let rec go n =
    if n = 0 then Lwt.return_unit
    else
      let a, b = Lwt_unix.socketpair PF_UNIX SOCK_STREAM 0 in
      let copy = Lwt_unix.dup a in
      let first = Lwt_unix.read a buffer 0 1 and second = Lwt_unix.read copy buffer 1 1 in
      let* () = Lwt.pause () in
      let* () = write_all b "xy" 0 in
      let* m = first in
      let* n' = second in
      if m + n' <> 2 then print "%d bytes" (m + n');
      let lost = Lwt_unix.read a buffer 0 1 in
      let* () = Lwt.pause () in
      let* () = Lwt_unix.close a in
      show "" (Lwt.catch (fun () -> lost >|= string_of_int) (fun _ -> Lwt.return "closed"));
      let c, d = Lwt_unix.socketpair PF_UNIX SOCK_STREAM 0 in
      let reused = Lwt_unix.read c buffer 0 1 in
      let* () = Lwt.pause () in
      let* () = write_all d "z" 0 in
      let* _ = reused in
      let* () = write_all b "q" 0 in
      let* count = Lwt_unix.read copy buffer 0 5 in
      print "%S" (Bytes.sub_string buffer 0 count);
      let* () = Lwt_list.iter_s Lwt_unix.close [ b; c; d; copy ] in
      go (n - 1)
  in
  let before = open_descriptors () in
  let* () = go 30 in
  (* An engine may open one for itself. *)
  print "descriptors left: %b" (open_descriptors () > before + 3);
  Lwt.return_unit

(* Users of Lwt_engine itself: partial reads, no read at all, two events of a descriptor, timers. *)
let events () =
  let a, b = Unix.socketpair PF_UNIX SOCK_STREAM 0 in
  let buffer = Bytes.create 1 and got = Buffer.create 10 and calls = ref 0 in
  let event =
    Lwt_engine.on_readable a (fun _ ->
        incr calls;
        if !calls land 1 = 0 then Buffer.add_subbytes got buffer 0 (Unix.read a buffer 0 1))
  in
  ignore (Unix.write_substring b "0123456789" 0 10);
  let rec wait () =
    if Buffer.length got = 10 then Lwt.return_unit else Lwt_unix.sleep 0.001 >>= wait
  in
  let* () = wait () in
  print "%s in %d calls" (Buffer.contents got) !calls;
  Lwt_engine.stop_event event;
  Lwt_engine.stop_event event;
  let log = ref [] in
  let once name event =
    log := name :: !log;
    Lwt_engine.stop_event event
  in
  ignore (Lwt_engine.on_readable a (once "first"));
  ignore (Lwt_engine.on_readable a (once "second"));
  ignore (Unix.write_substring b "x" 0 1);
  let* () = Lwt_unix.sleep 0.01 in
  ignore
    (Lwt_engine.on_timer 0.005 true (fun event ->
         log := "again" :: !log;
         if List.length !log >= 7 then Lwt_engine.stop_event event));
  ignore (Lwt_engine.on_timer 0. false (once "zero"));
  ignore (Lwt_engine.on_timer (-1.) false (once "negative"));
  Lwt_engine.stop_event (Lwt_engine.on_timer 0.001 false (once "stopped"));
  let* () = Lwt_unix.sleep 0.2 in
  print "%s" (String.concat " " (List.rev !log));
  print "%d %d" (Lwt_engine.writable_count ()) (Lwt_engine.timer_count ());
  Lwt.return_unit

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

(* Four children accept on the parent's socket, until SIGTERM. *)
let prefork () =
  let* socket, address = listen loopback in
  let serve connection =
    let ic = Lwt_io.of_fd ~mode:Lwt_io.input connection ~close:Lwt.return in
    let* line = Lwt_io.read_line ic in
    let* () = write_all connection (String.uppercase_ascii line ^ "\n") 0 in
    Lwt_unix.close connection
  in
  let rec accept () =
    let* connection, _ = Lwt_unix.accept socket in
    Lwt.async (fun () -> serve connection);
    accept ()
  in
  let child () =
    let stop, stopper = Lwt.wait () in
    ignore (Lwt_unix.on_signal Sys.sigterm (fun _ -> Lwt.wakeup_later stopper ()));
    let* () = Lwt.pick [ accept (); stop ] in
    exit 0
  in
  (* The parent waits for something itself while it forks. *)
  let a, b = Lwt_unix.socketpair PF_UNIX SOCK_STREAM 0 in
  let own = Lwt_unix.read a (Bytes.create 10) 0 10 in
  let* () = Lwt.pause () in
  let rec fork n children =
    if n = 0 then Lwt.return children
    else match Lwt_unix.fork () with 0 -> child () | pid -> fork (n - 1) (pid :: children)
  in
  let* children = fork 4 [] in
  let* () =
    tasks 100 (fun i ->
        let line = Printf.sprintf "request %d" i in
        let* socket = connect address in
        let* () = write_all socket (line ^ "\n") 0 in
        let* answer = Lwt_io.read (Lwt_io.of_fd ~mode:Lwt_io.input socket) in
        if answer <> String.uppercase_ascii line ^ "\n" then print "%d: %S" i answer;
        Lwt.return_unit)
  in
  List.iter (fun pid -> Unix.kill pid Sys.sigterm) children;
  let* () =
    Lwt_list.iter_s
      (fun pid ->
        let* _, ended = Lwt_unix.waitpid [] pid in
        print "%s" (status ended);
        Lwt.return_unit)
      children
  in
  let* () = write_all b "own" 0 in
  let* count = own in
  print "%d" count;
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

(* ---- Files ---------------------------------------------------------------------------------- *)

module type UNIX = sig
  open Lwt_unix

  val openfile : string -> Unix.open_flag list -> Unix.file_perm -> file_descr Lwt.t
  val close : file_descr -> unit Lwt.t
  val dup : ?cloexec:bool -> file_descr -> file_descr
  val read : file_descr -> bytes -> int -> int -> int Lwt.t
  val pread : file_descr -> bytes -> file_offset:int -> int -> int -> int Lwt.t
  val write_string : file_descr -> string -> int -> int -> int Lwt.t
  val lseek : file_descr -> int -> Unix.seek_command -> int Lwt.t
end

module type IO = sig
  val open_file :
    ?buffer:Lwt_bytes.t ->
    ?flags:Unix.open_flag list ->
    ?perm:Unix.file_perm ->
    mode:'a Lwt_io.mode ->
    Lwt_io.file_name ->
    'a Lwt_io.channel Lwt.t

  val lines_of_file : Lwt_io.file_name -> string Lwt_stream.t
end

(* On libev with Lwt's modules, on our engine with ours. *)
module Files (Lwt_unix : UNIX) (Io : IO) = struct
  let run path =
    let* file = Lwt_unix.openfile path [ O_RDWR; O_CREAT; O_TRUNC ] 0o600 in
    let text = String.concat "" (List.init 10_000 (Printf.sprintf "line %d\n")) in
    let* _ = Lwt_unix.write_string file text 0 (String.length text) in
    let buffer = Bytes.create 20 in
    let copy = Lwt_unix.dup file in
    let* () = Lwt_unix.close file in
    (* Neither the closed file nor the socket that has its number now may be touched. *)
    let a, b = Unix.socketpair Unix.PF_UNIX Unix.SOCK_STREAM 0 in
    Unix.set_nonblock a;
    Unix.set_nonblock b;
    show "read after close" (Lwt_unix.read file buffer 0 20 >|= string_of_int);
    show "pread after close" (Lwt_unix.pread file buffer ~file_offset:0 0 20 >|= string_of_int);
    show "close after close"
      (Lwt.catch (fun () -> Lwt_unix.close file >|= fun () -> "closed") Lwt.fail);
    List.iter
      (fun socket ->
        match Unix.read socket buffer 0 1 with
        | count -> print "%d" count
        | exception Unix.Unix_error (error, _, _) ->
            print "%s" (Unix.error_message error))
      [ a; b ];
    let* _ = Lwt_unix.lseek copy 5 SEEK_SET in
    let ic = Lwt_io.of_fd ~mode:Lwt_io.input copy in
    let* first = Lwt_io.read_line ic in
    let* second = Lwt_io.read_line ic in
    print "%s, %s" first second;
    let* () = Lwt_io.close ic in
    let count line sum = sum + String.length line in
    let* sum = Lwt_stream.fold count (Io.lines_of_file path) 0 in
    print "%d" sum;
    let* oc = Io.open_file ~mode:Lwt_io.output path in
    let* () = Lwt_io.write_line oc "short" in
    let* () = Lwt_io.set_position oc 2L in
    let* () = Lwt_io.write oc "X" in
    let* () = Lwt_io.close oc in
    let* lines = Lwt_stream.to_list (Io.lines_of_file path) in
    print "%s" (String.concat "|" lines);
    Lwt.return_unit
end

module Lwt_files = Files (Lwt_unix) (Lwt_io)
module Ringway_files = Files (Ringway_lwt.Unix) (Ringway_lwt.Io)

let files () =
  let path = Filename.temp_file "ringway-programs" ".txt" in
  Lwt.finalize
    (fun () ->
      if Ringway_lwt.Engine.installed () then Ringway_files.run path else Lwt_files.run path)
    (fun () -> Lwt_unix.unlink path)

(* ---- Running them --------------------------------------------------------------------------- *)

let programs =
  let lwt program () = Lwt_main.run (program ()) in
  [
    ("chat", lwt chat); ("forwarder", lwt forwarder); ("closing", lwt closing);
    ("restart", lwt restart); ("duplicates", lwt duplicates); ("events", lwt events);
    ("processes", lwt processes); ("prefork", lwt prefork); ("signals", signals);
    ("threads", threads); ("files", lwt files);
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
  Buffer.contents output ^ status ended ^ "\n"

let compare_engines name =
  let expected = outcome "libev" name and got = outcome "ringway" name in
  let same = expected = got in
  if same then Printf.printf "%-12s same\n%!" name
  else Printf.printf "%-12s DIFFERS\non libev:\n%son ringway:\n%s%!" name expected got;
  same

let () =
  match Sys.argv with
  | [| _; engine; name |] ->
      Sys.set_signal Sys.sigpipe Signal_ignore;
      install engine;
      (List.assoc name programs) ()
  | _ -> (
      match Ringway_lwt.Engine.install () with
      | Error reason ->
          Printf.printf "skipped: programs on the engine: %s\n" reason;
          if Sys.getenv_opt "CI" <> None then exit 1
      | Ok () ->
          Ringway_lwt.Engine.remove ();
          let same = List.map (fun (name, _) -> compare_engines name) programs in
          if List.mem false same then exit 1)
