(* Programs for Lwt, unchanged, on the engine. *)

open Lwt.Syntax
open Harness

let int = Alcotest.(check int)
let local port = Unix.ADDR_INET (Unix.inet_addr_loopback, port)

(* A server on a free port. *)
let serve handler f =
  let socket = Lwt_unix.socket ~cloexec:true Unix.PF_INET Unix.SOCK_STREAM 0 in
  let* () = Lwt_unix.bind socket (local 0) in
  let address = Lwt_unix.getsockname socket in
  let* () = Lwt_unix.close socket in
  let* server = Lwt_io.establish_server_with_client_address address handler in
  Lwt.finalize (fun () -> f address) (fun () -> Lwt_io.shutdown_server server)

let echo _ (input, output) =
  let rec loop () =
    let* line = Lwt_io.read_line_opt input in
    match line with
    | None -> Lwt.return_unit
    | Some line ->
        let* () = Lwt_io.write_line output line in
        let* () = Lwt_io.flush output in
        loop ()
  in
  loop ()

let test_echo () =
  let connections = 200 and messages = 20 in
  let client address i =
    Lwt_io.with_connection address (fun (input, output) ->
        let rec loop j =
          if j = messages then Lwt.return j
          else
            let line = Printf.sprintf "connection %d, message %d" i j in
            let* () = Lwt_io.write_line output line in
            let* () = Lwt_io.flush output in
            let* answer = Lwt_io.read_line input in
            Alcotest.(check string) "answer" line answer;
            loop (j + 1)
        in
        loop 0)
  in
  let run () =
    serve echo (fun address ->
        let* counts = Lwt_list.map_p (client address) (List.init connections Fun.id) in
        Lwt.return (List.fold_left ( + ) 0 counts))
  in
  int "messages" (connections * messages) (Lwt_main.run (run ()));
  int "again" (connections * messages) (Lwt_main.run (run ()))

(* A megabyte through a server that copies it into another socket. *)
let test_copy () =
  let size = 1 lsl 20 in
  let text = String.init size (fun i -> Char.chr (i * 7 mod 256)) in
  let received =
    Lwt_main.run
      (serve
         (fun _ (input, output) -> Lwt_io.write_chars output (Lwt_io.read_chars input))
         (fun address ->
           Lwt_io.with_connection address (fun (input, output) ->
               let receive =
                 let buffer = Bytes.create size in
                 let* () = Lwt_io.read_into_exactly input buffer 0 size in
                 Lwt.return (Bytes.to_string buffer)
               in
               let* () = Lwt_io.write output text in
               let* () = Lwt_io.flush output in
               receive)))
  in
  Alcotest.(check bool) "the same" true (received = text)

(* The server sees the client's half-close, the client the server's. *)
let test_half_close () =
  let total =
    Lwt_main.run
      (serve
         (fun _ (input, output) ->
           let* all = Lwt_io.read input in
           let* () = Lwt_io.write_line output (string_of_int (String.length all)) in
           Lwt_io.flush output)
         (fun address ->
           let socket = Lwt_unix.socket ~cloexec:true Unix.PF_INET Unix.SOCK_STREAM 0 in
           let* () = Lwt_unix.connect socket address in
           let* n = Lwt_unix.write_string socket (String.make 5000 'x') 0 5000 in
           int "written" 5000 n;
           Lwt_unix.shutdown socket Unix.SHUTDOWN_SEND;
           let input = Lwt_io.of_fd ~mode:Lwt_io.input socket in
           let* line = Lwt_io.read_line input in
           let* rest = Lwt_io.read input in
           Alcotest.(check string) "end" "" rest;
           let* () = Lwt_io.close input in
           Lwt.return (int_of_string line)))
  in
  int "all" 5000 total

let test_refused () =
  let result =
    Lwt_main.run
      (let socket = Lwt_unix.socket ~cloexec:true Unix.PF_INET Unix.SOCK_STREAM 0 in
       let* () = Lwt_unix.bind socket (local 0) in
       let address = Lwt_unix.getsockname socket in
       let* () = Lwt_unix.close socket in
       Lwt.catch
         (fun () ->
           let* _ = Lwt_io.open_connection address in
           Lwt.return "connected")
         (function
           | Unix.Unix_error (error, name, _) -> Lwt.return (name ^ ": " ^ Unix.error_message error)
           | exn -> Lwt.fail exn))
  in
  Alcotest.(check string) "error" "connect: Connection refused" result

(* Each timeout cancels a read whose poll is armed. *)
let test_timeouts () =
  let count =
    Lwt_main.run
      (let input, output = Lwt_unix.pipe ~cloexec:true () in
       let buffer = Bytes.create 1 in
       let rec loop n =
         if n = 50 then Lwt.return n
         else
           Lwt.catch
             (fun () ->
               let* _ = Lwt_unix.with_timeout 0.001 (fun () -> Lwt_unix.read input buffer 0 1) in
               Lwt.fail Exit)
             (function Lwt_unix.Timeout -> loop (n + 1) | exn -> Lwt.fail exn)
       in
       let* n = loop 0 in
       let read = Lwt_unix.read input buffer 0 1 in
       let* _ = Lwt_unix.write_string output "x" 0 1 in
       let* one = read in
       int "nothing was lost" 1 one;
       let* () = Lwt_unix.close input in
       let* () = Lwt_unix.close output in
       Lwt.return n)
  in
  int "timeouts" 50 count

(* Closing a descriptor that is being read. *)
let test_close_while_reading () =
  let outcome =
    Lwt_main.run
      (let input, output = Lwt_unix.pipe ~cloexec:true () in
       let read = Lwt_unix.read input (Bytes.create 1) 0 1 in
       let* () = Lwt.pause () in
       let* () = Lwt_unix.close input in
       let* outcome =
         Lwt.catch
           (fun () -> Lwt.map (fun _ -> "read") read)
           (function
             | Unix.Unix_error (Unix.EBADF, _, _) -> Lwt.return "EBADF"
             | exn -> Lwt.fail exn)
       in
       let* () = Lwt_unix.close output in
       Lwt.return outcome)
  in
  Alcotest.(check string) "outcome" "EBADF" outcome

let test_pipeline () =
  let output =
    Lwt_main.run
      (let generator = Lwt_process.open_process_in ("seq", [| "seq"; "1"; "2000" |]) in
       let sorter = Lwt_process.open_process ("sort", [| "sort"; "-rn" |]) in
       let feed =
         let* () = Lwt_io.write_lines sorter#stdin (Lwt_io.read_lines generator#stdout) in
         Lwt_io.close sorter#stdin
       in
       let* lines = Lwt_stream.to_list (Lwt_io.read_lines sorter#stdout) in
       let* () = feed in
       let* a = generator#close and* b = sorter#close in
       Alcotest.(check bool) "statuses" true (a = Unix.WEXITED 0 && b = Unix.WEXITED 0);
       Lwt.return lines)
  in
  let expected = List.init 2000 (fun i -> string_of_int (2000 - i)) in
  Alcotest.(check (list string)) "sorted" expected output

let case name f = Alcotest.test_case name `Quick (with_engine f)

let () =
  where_installed (fun () ->
      Alcotest.run "programs"
        [
          ( "programs",
            [
              case "echo, 200 connections" test_echo;
              case "copy" test_copy;
              case "half-close" test_half_close;
              case "connection refused" test_refused;
              case "timeouts in a loop" test_timeouts;
              case "close while reading" test_close_while_reading;
              case "processes" test_pipeline;
            ] );
        ])
