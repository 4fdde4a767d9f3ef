(* Sums the bytes of a file or of a TCP stream: the two experiments with which the article
   "Integrating io_uring with Async" measured its scheduler. Prints the sum as that program did.

     count file PATH
     count tcp PORT      listens, sums one connection, and ends; port 0: any *)

open Lwt.Infix
module Reader = Ringway_lwt.Reader
module Tcp = Ringway_lwt.Tcp

let block_size = 32 * 1024

let rec crc sum data index length =
  if index = length then sum
  else crc (sum + Char.code (Bytes.unsafe_get data index)) data (index + 1) length

let sum reader =
  let block = Bytes.create block_size in
  let rec loop total =
    Reader.read reader block >>= function
    | `Eof -> Lwt.return total
    | `Ok length -> loop (crc total block 0 length)
  in
  loop 0

let print total = Printf.printf "(crc %d)\n%!" total
let file path = Reader.with_file ~buffer_size:block_size path sum >|= print

let tcp port =
  let done_, resolver = Lwt.wait () in
  Tcp.serve ~buffer_size:block_size
    ~on_handler_error:(fun _ exn -> Lwt.wakeup_later_exn resolver exn)
    (Unix.ADDR_INET (Unix.inet_addr_loopback, port))
    (fun _ reader _ -> sum reader >|= Lwt.wakeup_later resolver)
  >>= fun server ->
  (match Tcp.address server with
  | ADDR_INET (_, port) -> Printf.eprintf "listening on port %d\n%!" port
  | ADDR_UNIX _ -> ());
  done_ >>= fun total ->
  print total;
  Tcp.close server

let () =
  (match Ringway_lwt.Engine.install () with
  | Ok () -> ()
  | Error reason -> Printf.eprintf "without io_uring: %s\n%!" reason);
  let main =
    match Array.to_list Sys.argv with
    | [ _; "file"; path ] -> file path
    | [ _; "tcp"; port ] when int_of_string_opt port <> None -> tcp (int_of_string port)
    | _ ->
        prerr_endline "usage: count file PATH | count tcp PORT";
        exit 2
  in
  try Lwt_main.run main
  with Unix.Unix_error (code, name, argument) ->
    Printf.eprintf "count: %s %s: %s\n" name argument (Unix.error_message code);
    exit 1
