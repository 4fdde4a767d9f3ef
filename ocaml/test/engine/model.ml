(* Random sequences of operations on sockets and pipes, with events and timers, on our engine and on
   Lwt's own engines as the model: the same events with the same results.

   What is compared: for each step, which callbacks have transferred data, seen the end of the
   stream or an error, and how much. The order of the callbacks of one iteration is compared within
   a descriptor and direction only, because libev leaves it open between descriptors. A callback
   that finds its descriptor not ready (EAGAIN) does not count: poll operations may report readiness
   that another callback has consumed. *)

open Harness

type action =
  | Write of int * int (* end, bytes *)
  | Watch of int * bool * int * int (* end, readable?, bytes of a call, calls before it stops *)
  | Unwatch of int * bool
  | Shut of int (* the sending direction *)
  | Close of int
  | Open of int (* again: the number is used again *)
  | Timer of int (* milliseconds, stops after one call *)

let show = function
  | Write (i, n) -> Printf.sprintf "Write (%d, %d)" i n
  | Watch (i, readable, n, calls) -> Printf.sprintf "Watch (%d, %b, %d, %d)" i readable n calls
  | Unwatch (i, readable) -> Printf.sprintf "Unwatch (%d, %b)" i readable
  | Shut i -> Printf.sprintf "Shut %d" i
  | Close i -> Printf.sprintf "Close %d" i
  | Open i -> Printf.sprintf "Open %d" i
  | Timer ms -> Printf.sprintf "Timer %d" ms

(* Ends 2k and 2k + 1 are connected. *)
let pairs = 4
let ends = 2 * pairs

let action =
  QCheck.Gen.(
    let some_end = int_bound (ends - 1) in
    frequency
      [
        (6, map2 (fun i n -> Write (i, n + 1)) some_end (int_bound 300));
        ( 6,
          map2
            (fun (i, readable) (n, calls) -> Watch (i, readable, n + 1, calls + 1))
            (pair some_end bool)
            (pair (int_bound 200) (int_bound 3)) );
        (2, map2 (fun i readable -> Unwatch (i, readable)) some_end bool);
        (1, map (fun i -> Shut i) some_end);
        (1, map (fun i -> Close i) some_end);
        (2, map (fun i -> Open i) (int_bound (pairs - 1)));
        (1, map (fun ms -> Timer ms) (int_bound 2));
      ])

let tcp_pair () =
  let server = Unix.socket ~cloexec:true Unix.PF_INET Unix.SOCK_STREAM 0 in
  Unix.bind server (Unix.ADDR_INET (Unix.inet_addr_loopback, 0));
  Unix.listen server 1;
  let client = Unix.socket ~cloexec:true Unix.PF_INET Unix.SOCK_STREAM 0 in
  Unix.connect client (Unix.getsockname server);
  let accepted, _ = Unix.accept ~cloexec:true server in
  Unix.close server;
  (client, accepted)

let open_pair k =
  let a, b =
    match k with
    | 0 | 1 -> Unix.socketpair ~cloexec:true Unix.PF_UNIX Unix.SOCK_STREAM 0
    | 2 -> tcp_pair ()
    | _ -> Unix.pipe ~cloexec:true ()
  in
  Unix.set_nonblock a;
  Unix.set_nonblock b;
  (a, b)

let result f =
  match f () with
  | n -> string_of_int n
  | exception Unix.Unix_error (error, _, _) -> Unix.error_message error

let not_ready = Unix.error_message Unix.EAGAIN

(* The trace of each step, on the engine that is current. *)
let run actions =
  let fds = Array.make ends None in
  let events = Hashtbl.create 16 in
  let trace = ref [] and pending = ref 0 in
  let note i text = trace := (i, text) :: !trace in
  let unwatch i readable =
    List.iter Lwt_engine.stop_event (Hashtbl.find_all events (i, readable));
    while Hashtbl.mem events (i, readable) do
      Hashtbl.remove events (i, readable)
    done
  in
  let close i =
    unwatch i true;
    unwatch i false;
    Option.iter Unix.close fds.(i);
    fds.(i) <- None
  in
  let reopen k =
    close (2 * k);
    close ((2 * k) + 1);
    let a, b = open_pair k in
    fds.(2 * k) <- Some a;
    fds.((2 * k) + 1) <- Some b
  in
  let data = Bytes.make 400 'x' in
  let apply = function
    | Write (i, n) ->
        let write fd = note i ("write " ^ result (fun () -> Unix.write fd data 0 n)) in
        Option.iter write fds.(i)
    | Watch (i, readable, n, calls) ->
        (* One end reads what the other writes in the same iteration, or in the next one: that
           depends on the order between descriptors. *)
        unwatch (i lxor 1) (not readable);
        let watch fd =
          let left = ref calls in
          let buffer = Bytes.create n in
          let callback event =
            let text =
              if readable then result (fun () -> Unix.read fd buffer 0 n)
              else result (fun () -> Unix.write fd buffer 0 n)
            in
            if text <> not_ready then begin
              note i ((if readable then "readable " else "writable ") ^ text);
              decr left;
              if !left = 0 then Lwt_engine.stop_event event
            end
          in
          Hashtbl.add events (i, readable)
            (if readable then Lwt_engine.on_readable fd callback
             else Lwt_engine.on_writable fd callback)
        in
        Option.iter watch fds.(i)
    | Unwatch (i, readable) -> unwatch i readable
    | Shut i ->
        let shut fd =
          try Unix.shutdown fd Unix.SHUTDOWN_SEND with Unix.Unix_error _ -> ()
        in
        Option.iter shut fds.(i)
    | Close i -> close i
    | Open k -> reopen k
    | Timer ms ->
        incr pending;
        ignore
          (Lwt_engine.on_timer (float_of_int ms *. 1e-3) false (fun event ->
               Lwt_engine.stop_event event;
               decr pending))
  in
  for k = 0 to pairs - 1 do
    reopen k
  done;
  let steps =
    List.map
      (fun action ->
        trace := [];
        apply action;
        iterate_until (fun () -> !pending = 0);
        (* Each call of a callback that has a limit may take an iteration. *)
        for _ = 1 to 8 do
          Lwt_engine.iter false
        done;
        (* Stable: the order within a descriptor and direction stays. *)
        let key (i, text) = (i, text.[0]) in
        List.stable_sort (fun a b -> compare (key a) (key b)) (List.rev !trace))
      actions
  in
  for i = 0 to ends - 1 do
    close i
  done;
  steps

let differs name ours theirs actions =
  let rec first i = function
    | our :: ours, their :: theirs ->
        if our = their then first (i + 1) (ours, theirs)
        else
          let text steps =
            String.concat ", " (List.map (fun (i, text) -> Printf.sprintf "%d: %s" i text) steps)
          in
          Printf.sprintf "step %d (%s)\n  ours: %s\n  %s: %s" i
            (show (List.nth actions i))
            (text our) name (text their)
    | _ -> "different lengths"
  in
  first 0 (ours, theirs)

(* Where the select engine differs from libev and ours: it calls the callbacks of a descriptor in
   the reverse order of registration, so there is one at a time; and it does not report a hang-up as
   writable, which concerns the reading end of a pipe. *)
let for_select actions =
  List.concat_map
    (function
      | Watch (6, false, _, _) -> []
      | Watch (i, readable, _, _) as action -> [ Unwatch (i, readable); action ]
      | action -> [ action ])
    actions

let same name engine actions =
  install ();
  let ours = run actions in
  Lwt_engine.set (engine ());
  let theirs = run actions in
  if ours <> theirs then QCheck.Test.fail_report (differs name ours theirs actions)

let property actions =
  if Lwt_sys.have `libev then
    same "libev" (fun () -> (new Lwt_engine.libev () :> Lwt_engine.t)) actions;
  same "select" (fun () -> (new Lwt_engine.select :> Lwt_engine.t)) (for_select actions);
  true

let () =
  Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
  where_installed (fun () ->
      let count =
        match Sys.getenv_opt "RINGWAY_TEST_COUNT" with
        | Some count -> int_of_string count
        | None -> 150
      in
      let actions =
        QCheck.make
          ~print:(fun actions -> String.concat "; " (List.map show actions))
          ~shrink:QCheck.Shrink.list
          QCheck.Gen.(list_size (int_range 1 60) action)
      in
      QCheck.Test.check_exn (QCheck.Test.make ~count ~name:"as Lwt's engines" actions property);
      Printf.printf "model: %d sequences gave the same events\n" count)
