(* Tests of Tcp: connections, servers, and what goes wrong with them. *)

open Lwt.Infix
open Common
module Reader = Ringway_lwt.Reader
module Writer = Ringway_lwt.Writer
module Tcp = Ringway_lwt.Tcp

let any_port = Unix.ADDR_INET (Unix.inet_addr_loopback, 0)
let unexpected _ exn = Alcotest.failf "error of a handler: %s" (show_exn exn)

let with_server ?max_connections ?on_accept_error ?(on_handler_error = unexpected)
    ?(address = any_port) handler f =
  Tcp.serve ?max_connections ?on_accept_error ~on_handler_error address handler >>= fun server ->
  Lwt.finalize
    (fun () -> f server)
    (fun () -> Tcp.close server >>= fun () -> Tcp.wait server)

let rec echo _peer reader writer =
  Reader.read_line reader >>= function
  | `Eof -> Lwt.return_unit
  | `Ok line ->
      Writer.write writer (line ^ "\n") >>= fun () ->
      Writer.flush writer >>= fun () -> echo _peer reader writer

let ask reader writer line =
  Writer.write writer (line ^ "\n") >>= fun () ->
  Writer.flush writer >>= fun () ->
  Reader.read_line reader >|= fun answer -> check bool line true (answer = `Ok line)

let round_trip () =
  let case address =
    with_server ~address echo (fun server ->
        Tcp.with_connection (Tcp.address server) (fun reader writer ->
            ask reader writer "hello" >>= fun () -> ask reader writer (String.make 100_000 'x')))
  in
  case any_port >>= fun () ->
  let path = new_path () in
  case (ADDR_UNIX path) >|= fun () -> Unix.unlink path

let peers () =
  let seen = ref [] in
  let handler peer _ writer =
    seen := peer :: !seen;
    Writer.write writer "welcome\n"
  in
  with_server handler (fun server ->
      let fd = Lwt_unix.socket PF_INET SOCK_STREAM 0 in
      Lwt_unix.connect fd (Tcp.address server) >>= fun () ->
      let ours = Lwt_unix.getsockname fd in
      let reader, writer = Tcp.of_socket fd in
      (* The handler's bytes are flushed when it ends. *)
      Reader.read_line reader >>= fun line ->
      check bool "the writer works" true (line = `Ok "welcome");
      check bool "the address of the peer" true (!seen = [ ours ]);
      Writer.close writer >>= fun () -> Reader.close reader)

let handler_errors () =
  let errors = ref [] in
  let on_handler_error _ exn = errors := exn :: !errors in
  let handler peer reader writer =
    Writer.write writer "not flushed" >>= fun () ->
    Reader.read_line reader >>= function
    | `Ok "raise" -> raise Exit
    | `Ok "fail" -> Lwt.fail Not_found
    | `Ok "cancel" -> Lwt.fail Lwt.Canceled
    | _ -> echo peer reader writer
  in
  let provoke server line =
    Tcp.with_connection (Tcp.address server) (fun reader writer ->
        Writer.write writer (line ^ "\n") >>= fun () ->
        Writer.flush writer >>= fun () ->
        Reader.read reader (Bytes.create 10) >|= fun result ->
        check bool "closed" true (result = `Eof))
    >>= fun () -> until (fun () -> Tcp.connections server = 0)
  in
  with_server ~on_handler_error handler (fun server ->
      Lwt_list.iter_s (provoke server) [ "raise"; "fail"; "cancel" ] >>= fun () ->
      check bool "reported" true (!errors = [ Lwt.Canceled; Not_found; Exit ]);
      Tcp.with_connection (Tcp.address server) (fun reader writer ->
          Writer.write writer "\n" >>= fun () ->
          Writer.close writer >>= fun () ->
          Reader.read_exactly reader (Bytes.create 11) >|= fun result ->
          check bool "the server goes on" true (result = `Ok)))

let limit () =
  let most = ref 0 in
  with_server ~max_connections:2
    (fun _ reader writer ->
      incr most;
      echo () reader writer >|= fun () -> decr most)
    (fun server ->
      let connect () = Tcp.connect (Tcp.address server) in
      let close (reader, writer) = Writer.close writer >>= fun () -> Reader.close reader in
      connect () >>= fun a ->
      connect () >>= fun b ->
      connect () >>= fun c ->
      ask (fst a) (snd a) "a" >>= fun () ->
      ask (fst b) (snd b) "b" >>= fun () ->
      let third = ask (fst c) (snd c) "c" in
      pauses 20 >>= fun () ->
      check bool "the third waits" true (Lwt.is_sleeping third);
      check int "two are served" 2 (Tcp.connections server);
      close a >>= fun () ->
      third >>= fun () ->
      close b >>= fun () -> close c)
  >|= fun () -> check int "all ended" 0 !most

let closing () =
  Tcp.serve ~on_handler_error:unexpected any_port echo >>= fun server ->
  let address = Tcp.address server in
  Tcp.connect address >>= fun (reader, writer) ->
  ask reader writer "before" >>= fun () ->
  let ended = Tcp.wait server in
  Tcp.close server >>= fun () ->
  Tcp.close server >>= fun () ->
  fails "refused" (Unix.Unix_error (ECONNREFUSED, "connect", "")) (fun () -> Tcp.connect address)
  >>= fun () ->
  ask reader writer "after" >>= fun () ->
  check bool "a connection is left" true (Lwt.is_sleeping ended);
  Writer.close writer >>= fun () ->
  Reader.close reader >>= fun () ->
  ended >>= fun () ->
  (* The address is free at once. *)
  with_server ~address echo (fun _ -> Lwt.return_unit)

let address_in_use () =
  with_server echo (fun server ->
      result (fun () -> Tcp.serve ~on_handler_error:unexpected (Tcp.address server) echo)
      >|= function
      | Error (Unix.Unix_error (EADDRINUSE, _, _)) -> ()
      | Error exn -> Alcotest.fail (show_exn exn)
      | Ok _ -> Alcotest.fail "listens twice")

let rec all_descriptors fds =
  match Unix.dup Unix.stdin with
  | fd -> all_descriptors (fd :: fds)
  | exception Unix.Unix_error (EMFILE, _, _) -> fds

(* Without descriptors the server reports it, neither stops nor spins, and goes on later. *)
let descriptors_exhausted () =
  let errors = ref [] in
  let reported, resolver = Lwt.wait () in
  let on_accept_error exn =
    errors := exn :: !errors;
    if List.length !errors = 3 then Lwt.wakeup_later resolver ()
  in
  with_server ~on_accept_error echo (fun server ->
      Tcp.with_connection (Tcp.address server) (fun reader writer ->
          ask reader writer "warm" >>= fun () ->
          let fd = Lwt_unix.socket PF_INET SOCK_STREAM 0 in
          let taken = all_descriptors [] in
          let iterations = ref 0 in
          let hook = Lwt_main.Enter_iter_hooks.add_last (fun () -> incr iterations) in
          Lwt_unix.connect fd (Tcp.address server) >>= fun () ->
          reported >>= fun () ->
          Lwt_main.Enter_iter_hooks.remove hook;
          List.iter
            (function
              | Unix.Unix_error (EMFILE, _, _) -> () | exn -> Alcotest.fail (show_exn exn))
            !errors;
          check bool "does not spin" true (!iterations < 100);
          ask reader writer "a connection that exists" >>= fun () ->
          List.iter Unix.close taken;
          let reader, writer = Tcp.of_socket fd in
          ask reader writer "the one that waited" >>= fun () ->
          Writer.close writer >>= fun () -> Reader.close reader))

let cancelled_connect () =
  (* The backlog is full, so that connecting waits. *)
  let listening = Unix.socket PF_INET SOCK_STREAM 0 in
  Unix.bind listening any_port;
  Unix.listen listening 1;
  let address = Unix.getsockname listening in
  let pending = List.init 8 (fun _ -> Tcp.connect address) in
  Lwt_unix.sleep 0.01 >>= fun () ->
  let waiting = List.filter Lwt.is_sleeping pending in
  check bool "some wait" true (waiting <> []);
  List.iter Lwt.cancel waiting;
  Lwt_list.iter_s
    (fun promise ->
      result (fun () -> promise) >>= function
      | Ok (reader, writer) -> Writer.close writer >>= fun () -> Reader.close reader
      | Error Lwt.Canceled -> Lwt.return_unit
      | Error exn -> Lwt.fail exn)
    pending
  >|= fun () -> Unix.close listening

let with_connection_errors () =
  with_server
    ~on_handler_error:(fun _ _ -> ())
    echo
    (fun server ->
      fails "the exception of f" Exit (fun () ->
          Tcp.with_connection (Tcp.address server) (fun _ writer ->
              Writer.write writer "dropped" >>= fun () -> raise Exit))
      >>= fun () ->
      match Tcp.connect ~buffer_size:0 (Tcp.address server) with
      | _ -> Alcotest.fail "buffer_size 0 is accepted"
      | exception Invalid_argument _ -> Lwt.return_unit)

let tests =
  [
    test_no_leak "a round trip" round_trip;
    test_no_leak "the address of the peer, and a writer" peers;
    test_no_leak "errors of handlers" handler_errors;
    test_no_leak "limit of connections" limit;
    test_no_leak "closing a server" closing;
    test_no_leak "an address in use" address_in_use;
    test_no_leak "descriptors exhausted" descriptors_exhausted;
    test_no_leak "cancelled connect" cancelled_connect;
    test_no_leak "errors of with_connection" with_connection_errors;
  ]
