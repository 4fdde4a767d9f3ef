(* The backends that the tests run on, and skips. RINGWAY_TEST_BACKENDS=threads leaves out the
   others, which valgrind does not support. *)

open Ringway

(* Where CI is set, a skip is a failure. *)
let skip ?(expected = false) reason =
  Printf.printf "skipped: %s\n%!" reason;
  if (not expected) && Sys.getenv_opt "CI" <> None then failwith "skipped although CI is set"

let wanted =
  let all = [ Queue.Uring; Queue.Kaio; Queue.Threads ] in
  match Sys.getenv_opt "RINGWAY_TEST_BACKENDS" with
  | None | Some "" -> all
  | Some names ->
      let names = String.split_on_char ',' names in
      List.filter (fun backend -> List.mem (Queue.backend_name backend) names) all

(* The kernel releases the locked memory of closed rings late. *)
let rec retry tries create =
  match create () with
  | queue -> queue
  | exception Queue.Error { error = Unix.ENOMEM; _ } when tries > 0 ->
      Unix.sleepf 0.001;
      retry (tries - 1) create

(* Those that this machine allows. Says which it does not. *)
let available =
  lazy
    (List.filter
       (fun backend ->
         match retry 2000 (fun () -> Queue.create ~backend ()) with
         | queue ->
             Queue.close queue;
             true
         | exception (Queue.Error _ as error) ->
             skip (Queue.backend_name backend ^ ": " ^ Printexc.to_string error);
             false)
       wanted)
