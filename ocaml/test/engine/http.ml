(* A cohttp server and client, unchanged, on the engine. *)

open Lwt.Syntax
open Cohttp_lwt_unix
open Harness

let requests = 200

let free_port () =
  let socket = Unix.socket ~cloexec:true Unix.PF_INET Unix.SOCK_STREAM 0 in
  Unix.bind socket (Unix.ADDR_INET (Unix.inet_addr_loopback, 0));
  let port =
    match Unix.getsockname socket with
    | Unix.ADDR_INET (_, port) -> port
    | Unix.ADDR_UNIX _ -> assert false
  in
  Unix.close socket;
  port

let callback _ request body =
  let* text = Cohttp_lwt.Body.to_string body in
  let body = Uri.path (Request.uri request) ^ " " ^ text in
  Server.respond_string ~status:`OK ~body ()

let rec until_it_listens port f =
  Lwt.catch f (function
    | Unix.Unix_error (Unix.ECONNREFUSED, _, _) ->
        let* () = Lwt.pause () in
        until_it_listens port f
    | exn -> Lwt.fail exn)

let client port i =
  let uri = Uri.of_string (Printf.sprintf "http://127.0.0.1:%d/%d" port i) in
  let text = String.make (i * 50) 'b' in
  let* response, body =
    until_it_listens port (fun () -> Client.post uri ~body:(Cohttp_lwt.Body.of_string text))
  in
  let* answer = Cohttp_lwt.Body.to_string body in
  let expected = Printf.sprintf "/%d %s" i text in
  if Response.status response = `OK && answer = expected then Lwt.return_unit
  else Lwt.fail_with (Printf.sprintf "request %d has another answer" i)

let () =
  where_installed (fun () ->
      with_engine
        (fun () ->
          let port = free_port () in
          let stop, resolver = Lwt.wait () in
          let server =
            Server.create ~stop ~mode:(`TCP (`Port port)) (Server.make ~callback ())
          in
          Lwt_main.run
            (let* () = Lwt_list.iter_p (client port) (List.init 20 Fun.id) in
             let* () = Lwt_list.iter_s (client port) (List.init requests Fun.id) in
             Lwt.wakeup_later resolver ();
             server))
        ();
      Printf.printf "http: %d requests were answered\n" (requests + 20))
