(* What the tests of the engine share. Each test installs the engine and removes it. *)

module Engine = Ringway_lwt.Engine

let skip ?(expected = false) reason =
  Printf.printf "skipped: %s\n%!" reason;
  if (not expected) && Sys.getenv_opt "CI" <> None then failwith "skipped although CI is set"

(* Runs the tests, or says why this machine cannot. *)
let where_installed run =
  match Engine.install () with
  | Ok () ->
      Engine.remove ();
      run ()
  | Error reason -> skip ("no io_uring here: " ^ reason)

let install () =
  match Engine.install () with
  | Ok () -> ()
  | Error reason -> failwith reason

let with_engine f () =
  install ();
  Fun.protect f ~finally:Engine.remove

let stats () =
  match Engine.stats () with
  | Some stats -> stats
  | None -> failwith "the engine is not installed"

(* The tests do not fail by waiting for ever. All of them together take longer where the machine is
   busy. *)
let () =
  Sys.set_signal Sys.sigalrm
    (Sys.Signal_handle
       (fun _ ->
         prerr_endline "the test has not ended within ten minutes";
         exit 3));
  ignore (Unix.alarm 600)

(* Iterations of the loop until the condition holds. *)
let rec iterate_until condition =
  if not (condition ()) then begin
    Lwt_engine.iter true;
    iterate_until condition
  end

(* All events that are ready are delivered within this many iterations that do not wait. *)
let poll_all () =
  for _ = 1 to 3 do
    Lwt_engine.iter false
  done

let write_all fd text =
  if Unix.write_substring fd text 0 (String.length text) <> String.length text then
    failwith "short write"

let close_both (a, b) =
  Unix.close a;
  Unix.close b

(* Runs the function in a forked child; true if it has returned. *)
let in_child f =
  match Unix.fork () with
  | 0 ->
      (* A child has no alarm. *)
      ignore (Unix.alarm 60);
      let code =
        match f () with
        | () -> 0
        | exception exn ->
            prerr_endline ("in the child: " ^ Printexc.to_string exn);
            1
      in
      Unix._exit code
  | pid -> snd (Unix.waitpid [] pid) = Unix.WEXITED 0
