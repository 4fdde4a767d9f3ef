open Lwt.Syntax
(* Ringway_lwt has a Unix of its own. *)
module System = Unix
open Ringway_lwt
module Unix = System

let () = match Engine.install () with Ok () -> print_endline "ok" | Error e -> print_endline e

let echo n messages =
  let* server =
    Lwt_io.establish_server_with_client_address
      (Unix.ADDR_INET (Unix.inet_addr_loopback, 7654))
      (fun _ (i, o) ->
        let rec loop () =
          let* line = Lwt_io.read_line_opt i in
          match line with
          | None -> Lwt.return ()
          | Some line ->
              let* () = Lwt_io.write_line o line in
              let* () = Lwt_io.flush o in
              loop ()
        in
        loop ())
  in
  let client k =
    Lwt_io.with_connection
      (Unix.ADDR_INET (Unix.inet_addr_loopback, 7654))
      (fun (i, o) ->
        let rec loop m =
          if m = 0 then Lwt.return ()
          else
            let line = Printf.sprintf "%d %d" k m in
            let* () = Lwt_io.write_line o line in
            let* () = Lwt_io.flush o in
            let* l = Lwt_io.read_line i in
            assert (l = line);
            loop (m - 1)
        in
        loop messages)
  in
  let* () = Lwt.join (List.init n client) in
  Lwt_io.shutdown_server server

let () =
  Lwt_main.run (Lwt_unix.sleep 0.1);
  Lwt_main.run (echo 200 50);
  (* the port is free *)
  Lwt_main.run (echo 10 50);
  Lwt_main.run
    (let* file = File.openfile "/etc/passwd" [ Unix.O_RDONLY ] 0 in
     let buffer = Ringway.Buffer.create 100 in
     let* n = File.pread file buffer ~pos:0 0 100 in
     assert (n = 100);
     let* () = File.close file in
     let* s = Lwt_process.pread ("echo", [| "echo"; "hello" |]) in
     assert (s = "hello\n");
     let* r = Lwt_preemptive.detach (fun () -> Unix.sleepf 0.01; 42) () in
     assert (r = 42);
     Lwt.catch
       (fun () -> Lwt_unix.with_timeout 0.01 (fun () -> fst (Lwt.wait ())))
       (function Lwt_unix.Timeout -> Lwt.return () | e -> Lwt.fail e));
  (match Engine.stats () with
  | Some s ->
      Printf.printf "iterations %d polls %d cancelled %d rings %d calls %d\n" s.iterations s.polls
        s.cancelled s.rings s.queue.system_calls
  | None -> assert false);
  Engine.remove ();
  Lwt_main.run (Lwt_unix.sleep 0.1);
  Lwt_main.run (echo 10 50);
  assert (Engine.install () = Ok ());
  Lwt_main.run (echo 10 50);
  print_endline (Engine.explain ())
