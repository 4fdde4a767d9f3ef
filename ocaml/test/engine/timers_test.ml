(* The heap of timers, against a list as the model. *)

(* Not a public module. *)
module Timers = Ringway_lwt__Timers

let add timers ?(period = -1) time callback =
  Timers.add timers ~time ~period ~delay:0. callback

let run_all timers now =
  let calls = ref [] in
  Timers.run timers ~now (fun callback ->
      calls := callback :: !calls;
      callback ());
  List.length !calls

let test_added_in_callback () =
  let timers = Timers.create () and called = ref 0 in
  ignore
    (add timers 1 (fun () ->
         ignore (add timers 0 (fun () -> incr called))));
  Alcotest.(check int) "the first" 1 (run_all timers 2);
  Alcotest.(check int) "not the second" 0 !called;
  Alcotest.(check int) "then the second" 1 (run_all timers 2);
  Alcotest.(check int) "called" 1 !called

let test_removed_in_callback () =
  let timers = Timers.create () in
  let later = ref None in
  ignore
    (add timers 1 (fun () -> Option.iter (Timers.remove timers) !later));
  later := Some (add timers ~period:5 1 (fun () -> Alcotest.fail "was removed"));
  Alcotest.(check int) "one" 1 (run_all timers 1);
  Alcotest.(check int) "none is left" Timers.never (Timers.next timers)

let test_repeat () =
  let timers = Timers.create () in
  let timer = add timers ~period:10 10 ignore in
  Alcotest.(check int) "once" 1 (run_all timers 12);
  Alcotest.(check int) "keeps its rhythm" 20 (Timers.next timers);
  Alcotest.(check int) "once although late" 1 (run_all timers 57);
  Alcotest.(check int) "missed periods are skipped" 60 (Timers.next timers);
  Alcotest.(check int) "not at once" 0 (run_all timers 57);
  Alcotest.(check int) "again" 1 (run_all timers 60);
  Alcotest.(check int) "rhythm" 70 (Timers.next timers);
  Timers.remove timers timer;
  Timers.remove timers timer;
  Alcotest.(check int) "removed" Timers.never (Timers.next timers)

let test_period_of_0 () =
  let timers = Timers.create () in
  ignore (add timers ~period:0 1 ignore);
  for now = 5 to 8 do
    Alcotest.(check int) "once in each run" 1 (run_all timers now);
    Alcotest.(check int) "due again" now (Timers.next timers)
  done

let test_never () =
  let timers = Timers.create () in
  ignore (add timers Timers.never ignore);
  ignore (add timers ~period:Timers.never 3 ignore);
  Alcotest.(check int) "one" 1 (run_all timers 4);
  Alcotest.(check int) "no overflow" Timers.never (Timers.next timers)

exception Stop

let test_exception () =
  let timers = Timers.create () and called = ref [] in
  let add name = ignore (add timers 1 (fun () -> called := name :: !called)) in
  List.iter add [ "a"; "b"; "c" ];
  let first = ref true in
  Alcotest.check_raises "raises" Stop (fun () ->
      Timers.run timers ~now:1 (fun callback ->
          callback ();
          if !first then begin
            first := false;
            raise Stop
          end));
  Alcotest.(check bool) "pending" true (Timers.pending timers);
  Alcotest.(check int) "the rest" 2 (run_all timers 1);
  Alcotest.(check (list string)) "each once" [ "a"; "b"; "c" ] (List.rev !called);
  Alcotest.(check bool) "none pending" false (Timers.pending timers)

type action = Add of int | Remove of int | Run of int

let random_actions =
  QCheck.Gen.(
    list_size (int_bound 200)
      (frequency
         [
           (5, map (fun time -> Add time) (int_bound 50));
           (3, map (fun i -> Remove i) (int_bound 100));
           (1, map (fun now -> Run now) (int_bound 50));
         ]))

(* The model keeps (time, order, name) of the timers that wait, unsorted. *)
let agrees actions =
  let timers = Timers.create () in
  let handles = Hashtbl.create 16 and waiting = ref [] and names = ref 0 in
  let called = ref [] in
  List.for_all
    (fun action ->
      match action with
      | Add time ->
          let name = !names in
          incr names;
          Hashtbl.add handles name
            (add timers time (fun () -> called := name :: !called));
          waiting := (time, name) :: !waiting;
          true
      | Remove i ->
          (match Hashtbl.find_opt handles i with
          | Some timer -> Timers.remove timers timer
          | None -> ());
          waiting := List.filter (fun (_, name) -> name <> i) !waiting;
          true
      | Run now ->
          let due, later = List.partition (fun (time, _) -> time <= now) !waiting in
          waiting := later;
          called := [];
          Timers.run timers ~now (fun callback -> callback ());
          List.rev !called = List.map snd (List.sort compare due)
          && Timers.next timers
             = List.fold_left (fun least (time, _) -> min least time) Timers.never later)
    actions

let model =
  QCheck.Test.make ~count:500 ~name:"as the model" (QCheck.make random_actions) agrees

let test_model () = QCheck.Test.check_exn model

let () =
  Alcotest.run "timers"
    [
      ( "timers",
        [
          Alcotest.test_case "added in a callback" `Quick test_added_in_callback;
          Alcotest.test_case "removed in a callback" `Quick test_removed_in_callback;
          Alcotest.test_case "repeating" `Quick test_repeat;
          Alcotest.test_case "a period of 0" `Quick test_period_of_0;
          Alcotest.test_case "never" `Quick test_never;
          Alcotest.test_case "exception" `Quick test_exception;
          Alcotest.test_case "model" `Quick test_model;
        ] );
    ]
