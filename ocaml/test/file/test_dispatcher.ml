(* The dispatcher and its promises: the loop never blocks with operations that are not submitted;
   what happens to promises when operations are cancelled, complete late, or lose their queue;
   forks, threads, signals, exits; allocation. *)

open Ringway
module System = Unix
open Ringway_lwt
module Unix = System
open Lwt.Syntax

let file name = Filename.concat Way.directory name
let nop () = Promise.run "nop" "" Operation.nop Fun.id

let outcome p =
  Lwt.try_bind
    (fun () -> p)
    (fun _ -> Lwt.return "ok")
    (function
      | Lwt.Canceled -> Lwt.return "canceled" | exn -> Lwt.return (Printexc.to_string exn))

(* Runs with a dispatcher of its own, over Lwt's engine. *)
let with_dispatcher ?(capacity = 64) ?faults f =
  let backend = List.hd (Way.backends ()) in
  let dispatcher = Dispatcher.create (Queue.create ~backend ~capacity ?faults ()) in
  let previous = if Way.is "engine" then Some (Dispatcher.current ()) else None in
  Dispatcher.set_current (Some dispatcher);
  Dispatcher.attach dispatcher;
  Lwt.finalize
    (fun () -> f dispatcher)
    (fun () ->
      Dispatcher.set_current previous;
      Lwt.return_unit)

(* Blocks. What is written is read by a pending read of the other end. *)
let fifo_number = ref 0

let fifo () =
  incr fifo_number;
  let path = file (Printf.sprintf "fifo %d" !fifo_number) in
  Unix.mkfifo path 0o600;
  Unix.openfile path [ O_RDWR; O_CLOEXEC ] 0

let read_one fd buffer =
  Promise.run "read" "" (Operation.read fd buffer ~off:0 ~len:1 ~pos:Operation.current_position)
    Fun.id

let write_one fd = assert (Unix.write_substring fd "x" 0 1 = 1)

(* ---- The loop ------------------------------------------------------------------------------- *)

(* After the dispatcher's hook, and before the engine's turn. *)
let started_by_a_later_hook () =
  let* _ = nop () in
  let promise, resolver = Lwt.wait () in
  let started = ref false in
  let hook =
    Lwt_main.Enter_iter_hooks.add_last (fun () ->
        (* Nothing else keeps the engine from blocking. *)
        if (not !started) && Lwt.paused_count () = 0 then begin
          started := true;
          Lwt.on_success (nop ()) (fun _ -> Lwt.wakeup resolver ())
        end)
  in
  let* () = promise in
  Lwt_main.Enter_iter_hooks.remove hook;
  Lwt.return_unit

let other_events_go_on () =
  (* Files that are always ready do not keep the loop from timers. *)
  let stop = ref false in
  let rec busy () = if !stop then Lwt.return_unit else Lwt.bind (nop ()) (fun _ -> busy ()) in
  let all = Lwt.join (List.init 50 (fun _ -> busy ())) in
  let* () = Lwt_unix.sleep 0.01 in
  stop := true;
  all

(* Neither do cached reads of single bytes, which end within the call. *)
let small_reads_go_on () =
  let path = file "small reads" in
  let* t = File.openfile path [ O_RDWR; O_CREAT; O_TRUNC ] 0o600 in
  let* () = File.write_exactly_string t "x" 0 1 in
  let iterations = ref 0 in
  let hook = Lwt_main.Enter_iter_hooks.add_first (fun () -> incr iterations) in
  let buffer = Buffer.create 1 in
  let rec go n =
    if n = 0 then Lwt.return_unit
    else Lwt.bind (File.pread_exactly t buffer ~pos:0 0 1) (fun () -> go (n - 1))
  in
  let* () = go 20_000 in
  Lwt_main.Enter_iter_hooks.remove hook;
  Alcotest.(check bool) "the loop has turned" true (!iterations >= 4);
  File.close t

let exceptions_of_callbacks () =
  let hook = !Lwt.async_exception_hook in
  let caught = ref [] in
  (Lwt.async_exception_hook := fun exn -> caught := exn :: !caught);
  let dispatcher = Dispatcher.current () in
  let others = List.init 5 (fun _ -> nop ()) in
  let (_ : Dispatcher.request) = Dispatcher.start dispatcher Operation.nop (fun _ -> raise Exit) in
  let more = List.init 5 (fun _ -> nop ()) in
  let* _ = Lwt.all (others @ more) in
  Lwt.async_exception_hook := hook;
  Alcotest.(check int) "caught" 1 (List.length (List.filter (( = ) Exit) !caught));
  let* result =
    outcome (Promise.run "nop" "" Operation.nop (fun _ -> failwith "finish"))
  in
  Alcotest.(check string) "of finish" "Failure(\"finish\")" result;
  Lwt.return_unit

(* Sys.Break leaves the loop; [abandon] and cancelled operations in the backlog have no completion
   from which the others could be called later. *)
let break_in_a_callback () =
  let check_end f =
    let called = ref 0 and caught = ref 0 and count = 10 in
    let hook = !Lwt.async_exception_hook in
    (Lwt.async_exception_hook := fun _ -> incr caught);
    let dispatcher =
      Dispatcher.create
        (Queue.create ~backend:(List.hd (Way.backends ())) ~capacity:1 ~close_wait_ms:100 ())
    in
    Dispatcher.attach dispatcher;
    let fd = fifo () in
    let read = Operation.read fd (Buffer.create 1) ~off:0 ~len:1 ~pos:Operation.current_position in
    ignore (Dispatcher.start dispatcher read ignore : Dispatcher.request);
    let callback i _ =
      incr called;
      if i = 3 then raise Sys.Break
    in
    let requests =
      List.init count (fun i -> Dispatcher.start dispatcher Operation.nop (callback i))
    in
    f dispatcher requests;
    let rec run () =
      try Lwt_main.run (Lwt_unix.sleep 0.05)
      with Sys.Break ->
        incr caught;
        run ()
    in
    run ();
    Lwt.async_exception_hook := hook;
    Alcotest.(check int) "called" count !called;
    Alcotest.(check int) "caught" 1 !caught;
    Dispatcher.abandon dispatcher;
    Lwt_main.run (Lwt.pause ());
    Unix.close fd
  in
  check_end (fun dispatcher requests -> List.iter (Dispatcher.cancel dispatcher) requests);
  check_end (fun dispatcher _ -> Dispatcher.abandon dispatcher)

(* ---- Cancelling ----------------------------------------------------------------------------- *)

let block = 512

(* Block i is full of characters that depend on i. *)
let pattern i = Char.chr (((i * 7) + (i lsr 8)) land 0xff)

let patterned blocks =
  let path = file "blocks" in
  let channel = open_out_bin path in
  for i = 0 to blocks - 1 do
    output_string channel (String.make block (pattern i))
  done;
  close_out channel;
  Unix.openfile path [ O_RDONLY; O_CLOEXEC ] 0

let is_full_of char buffer =
  let rec go i = i = block || (Bigarray.Array1.get buffer i = char && go (i + 1)) in
  go 0

(* A thousand reads, of which some are cancelled at once, some after they were submitted, some when
   others complete. No buffer has bytes of another's read. *)
let storm ?faults () =
  let count = 1000 in
  let fd = patterned count in
  let storm dispatcher =
    let buffers = Array.init count (fun _ -> Buffer.create block) in
    Array.iter (fun buffer -> Bigarray.Array1.fill buffer '\000') buffers;
    let ended = ref 0 in
    let reads =
      Array.mapi
        (fun i buffer ->
          Promise.run
            ~on_end:(fun () -> incr ended)
            "read" ""
            (Operation.exact (Operation.read fd buffer ~off:0 ~len:block ~pos:(i * block)))
            Fun.id)
        buffers
    in
    let cancel_every n = Array.iteri (fun i read -> if i mod n = 0 then Lwt.cancel read) reads in
    cancel_every 7;
    let* () = Lwt.pause () in
    cancel_every 3;
    let* _ = Lwt.choose (Array.to_list (Array.map outcome reads)) in
    cancel_every 2;
    let* outcomes = Lwt.all (Array.to_list (Array.map outcome reads)) in
    (* The buffers are ours when the operations have ended. *)
    let rec settle () =
      if !ended = count then Lwt.return_unit else Lwt.bind (Lwt_unix.sleep 0.001) settle
    in
    let* () = settle () in
    Alcotest.(check int) "none in flight" 0 (Dispatcher.in_flight dispatcher);
    List.iteri
      (fun i outcome ->
        let buffer = buffers.(i) in
        match outcome with
        | "ok" -> Alcotest.(check bool) "own bytes" true (is_full_of (pattern i) buffer)
        | "canceled" ->
            (* Or it came too late. *)
            for j = 0 to block - 1 do
              let c = Bigarray.Array1.get buffer j in
              if c <> '\000' && c <> pattern i then Alcotest.failf "foreign byte in buffer %d" i
            done;
            if i mod 2 <> 0 && i mod 3 <> 0 && i mod 7 <> 0 then
              Alcotest.failf "read %d was cancelled" i
        | other -> if faults = None then Alcotest.failf "read %d: %s" i other)
      outcomes;
    Lwt.return_unit
  in
  let* () = with_dispatcher ~capacity:64 ?faults storm in
  Unix.close fd;
  Lwt.return_unit

(* Opens that are cancelled and succeed nevertheless leave no descriptor open. *)
let late_open () =
  let path = file "opened" in
  Unix.close (Unix.openfile path [ O_CREAT; O_WRONLY ] 0o600);
  let count () = Array.length (Sys.readdir "/proc/self/fd") in
  with_dispatcher ~faults:"seed=5 delay=1000/20" (fun dispatcher ->
      let* _ = nop () in
      let before = count () in
      let opens = List.init 50 (fun _ -> File.openfile path [ O_RDONLY ] 0) in
      let* () = Lwt.pause () in
      let* () = Lwt.pause () in
      List.iter Lwt.cancel opens;
      let rec settle () =
        if Dispatcher.in_flight dispatcher = 0 then Lwt.return_unit
        else Lwt.bind (Lwt_unix.sleep 0.001) settle
      in
      let* () = settle () in
      let* () =
        Lwt_list.iter_s
          (fun p ->
            match Lwt.state p with Lwt.Return file -> File.close file | _ -> Lwt.return_unit)
          opens
      in
      Alcotest.(check int) "descriptors" before (count ());
      Lwt.return_unit)

let backlog () =
  with_dispatcher ~capacity:2 (fun dispatcher ->
      let order = ref [] in
      let fd = fifo () in
      (* Two reads fill the queue. *)
      let reads = List.init 2 (fun _ -> read_one fd (Buffer.create 1)) in
      let nops =
        List.init 20 (fun i ->
            let p = nop () in
            Lwt.on_success p (fun _ -> order := i :: !order);
            p)
      in
      let* () = Lwt_unix.sleep 0.01 in
      Alcotest.(check (list int)) "all wait" [] !order;
      Alcotest.(check int) "in flight" 22 (Dispatcher.in_flight dispatcher);
      List.iteri (fun i p -> if i mod 4 = 0 then Lwt.cancel p) nops;
      let* () = Lwt_unix.sleep 0.01 in
      Alcotest.(check int) "without the cancelled" 17 (Dispatcher.in_flight dispatcher);
      (* One slot is free from now on: one after another. *)
      write_one fd;
      let* _ = Lwt.all (List.map outcome nops) in
      let* () = Lwt.pause () in
      Alcotest.(check (list int))
        "in order"
        (List.filter (fun i -> i mod 4 <> 0) (List.init 20 Fun.id))
        (List.rev !order);
      write_one fd;
      let* _ = Lwt.all reads in
      Lwt.return (Unix.close fd))

(* What the queue refuses ends, and nothing else: also what had to wait for room. *)
let refused_in_the_backlog () =
  with_dispatcher ~capacity:2 (fun dispatcher ->
      let refused () = Promise.run "nop" "" (Operation.socket Operation.nop) Fun.id in
      let* at_once = outcome (refused ()) in
      Alcotest.(check bool) at_once true (at_once <> "ok" && at_once <> "canceled");
      let fd = fifo () in
      let reads = List.init 2 (fun _ -> read_one fd (Buffer.create 1)) in
      let before = nop () in
      let later = refused () in
      let after = nop () in
      write_one fd;
      let* results = Lwt.all (List.map outcome [ before; later; after ]) in
      Alcotest.(check (list string))
        "results"
        [ "ok"; at_once; "ok" ]
        results;
      (* No other operation takes the reason for its own later. *)
      (match Dispatcher.refusal () with
      | exn -> Alcotest.fail (Printexc.to_string exn)
      | exception Invalid_argument _ -> ());
      Alcotest.(check bool) "usable" true (Dispatcher.is_usable dispatcher);
      write_one fd;
      let* _ = Lwt.all reads in
      Lwt.return (Unix.close fd))

(* ---- Queues that go away -------------------------------------------------------------------- *)

let replaced () =
  let fd = fifo () in
  let* read, dispatcher =
    with_dispatcher (fun dispatcher ->
        let read = read_one fd (Buffer.create 1) in
        (* Not the promise itself, which Lwt.return would wait for. *)
        Lwt.return ((fun () -> read), dispatcher))
  in
  let read = read () in
  let* _ = nop () in
  Alcotest.(check int) "goes on" 1 (Dispatcher.in_flight dispatcher);
  Alcotest.(check bool) "open" true (Dispatcher.is_usable dispatcher);
  write_one fd;
  let* _ = read in
  let* () = Lwt.pause () in
  let* () = Lwt.pause () in
  Alcotest.(check bool) "closed when done" false (Dispatcher.is_usable dispatcher);
  Lwt.return (Unix.close fd)

let abandoned () =
  let fd = fifo () in
  let dispatcher = Dispatcher.create (Queue.create ~close_wait_ms:100 ()) in
  Dispatcher.attach dispatcher;
  let result, resolver = Lwt.wait () in
  let request = Dispatcher.start dispatcher
      (Operation.read fd (Buffer.create 1) ~off:0 ~len:1 ~pos:Operation.current_position)
      (Lwt.wakeup resolver)
  in
  let* () = Lwt.pause () in
  Dispatcher.abandon dispatcher;
  Alcotest.(check bool) "after a pause" true (Lwt.is_sleeping result);
  let* result = result in
  Alcotest.(check int) "result" (-Operation.ecanceled) result;
  Dispatcher.cancel dispatcher request;
  Dispatcher.abandon dispatcher;
  write_one fd;
  Lwt.return (Unix.close fd)

(* The ring's descriptor becomes another file, so that the next system call fails. *)
let failed_ring () =
  if not (Way.is "uring") then begin
    Way.skip "only a ring can fail";
    Lwt.return_unit
  end
  else begin
    Unix.putenv "RINGWAY_BACKEND" "";
    let fd = fifo () in
    let dispatcher = Dispatcher.create (Queue.create ~backend:Queue.Uring ~close_wait_ms:100 ()) in
    Dispatcher.set_current (Some dispatcher);
    Dispatcher.attach dispatcher;
    let ring = Queue.descriptor (Dispatcher.queue dispatcher) in
    let pending = read_one fd (Buffer.create 1) in
    let* _ = nop () in
    let null = Unix.openfile "/dev/null" [ O_RDONLY; O_CLOEXEC ] 0 in
    Unix.dup2 ~cloexec:true null ring;
    Unix.close null;
    let* outcomes = Lwt.all [ outcome pending; outcome (nop ()) ] in
    Alcotest.(check (list string))
      "rejected"
      [
        "Unix.Unix_error(Unix.EIO, \"read\", \"\")"; "Unix.Unix_error(Unix.EIO, \"nop\", \"\")";
      ]
      outcomes;
    let* _ = nop () in
    Alcotest.(check string)
      "the next backend" "kaio"
      (Queue.backend_name (Queue.backend (Dispatcher.queue (Dispatcher.current ()))));
    let explanation = Dispatcher.explain () in
    Alcotest.(check bool)
      "explained" true
      (String.length explanation > 30 && String.sub explanation 0 18 = "the queue on uring");
    Unix.putenv "RINGWAY_BACKEND" "uring";
    Lwt.return (Unix.close fd)
  end

(* ---- Processes, threads, signals ------------------------------------------------------------ *)

(* The parent's operations do not end in the child; the child has a queue of its own. *)
let forked ~fork () =
  let fd = fifo () in
  let path = file "child" in
  let pending = read_one fd (Buffer.create 1) in
  Lwt_main.run (Lwt.map ignore (nop ()));
  Limits.in_child ~fork (fun () ->
      let outcome =
        Lwt_main.run
          (let* file = File.openfile path [ O_WRONLY; O_CREAT; O_EXCL ] 0o600 in
           let* n = File.write_string file "child" 0 5 in
           assert (n = 5);
           let* () = File.close file in
           outcome pending)
      in
      if outcome <> "canceled" then failwith outcome);
  Alcotest.(check string) "written" "child" (Way.read_file path);
  Unix.unlink path;
  Alcotest.(check bool) "pending" true (Lwt.is_sleeping pending);
  write_one fd;
  Lwt_main.run (Lwt.map ignore pending);
  Unix.close fd

(* The child goes on where completions are delivered. That its queue is its parent's is not a
   failure of the queue. *)
let forked_in_callback () =
  let failures () =
    String.split_on_char '\n' (Dispatcher.explain ())
    |> List.filter (fun line -> String.length line > 9 && String.sub line 0 9 = "the queue")
    |> List.length
  in
  let before = failures () in
  let status =
    Lwt_main.run
      (let* _ = nop () in
       let others = List.init 10 (fun _ -> nop ()) in
       let* _ = nop () in
       match Lwt_unix.fork () with
       | 0 ->
           ignore (Unix.alarm 60);
           (* Nothing uses the dispatcher before the loop turns. *)
           let* () = Lwt_unix.sleep 0.001 in
           let* result = outcome (nop ()) in
           Unix._exit (if result = "ok" && failures () = before then 0 else 1)
       | pid ->
           let* _ = Lwt.all others in
           (* Lwt_unix.waitpid would handle the end of the other tests' children, too. *)
           Lwt.return (Limits.wait pid))
  in
  Alcotest.(check bool) "the child has ended well" true (status = Unix.WEXITED 0)

(* Runs this program again; see [main]. *)
let again name =
  let pid =
    Unix.create_process Sys.executable_name [| Sys.executable_name; name |] Unix.stdin Unix.stdout
      Unix.stderr
  in
  Limits.wait pid

let check_exit code = function
  | Unix.WEXITED n -> Alcotest.(check int) "exit" code n
  | WSIGNALED n | WSTOPPED n -> Alcotest.failf "signal %d" n

let exit_by_exception () = check_exit 2 (again "exception")

let prepare_exit () =
  let fd = fifo () in
  let pending = List.init 10 (fun _ -> read_one fd (Buffer.create 1)) in
  Lwt_main.run (Lwt.map ignore (nop ()));
  ignore (pending, nop ())

(* Nothing if this OCaml cannot tell of allocations. *)
let with_memprof f () =
  match Gc.Memprof.start ~sampling_rate:0. ~callstack_size:0 Gc.Memprof.null_tracker with
  | exception Failure reason -> Way.skip reason
  | _ ->
      Gc.Memprof.stop ();
      f ()

(* Calls [f] until it has not been interrupted: at its first allocation, at its second, and so on.
   [after] is called with the result, if there is one. *)
let interrupted_at_each_allocation f after =
  let rec go n =
    let left = ref n and interrupted = ref false in
    let allocated (_ : Gc.Memprof.allocation) =
      if !left = 0 then begin
        interrupted := true;
        left := -1;
        raise Exit
      end
      else if !left > 0 then decr left;
      None
    in
    ignore
      (Gc.Memprof.start ~sampling_rate:1. ~callstack_size:0
         { Gc.Memprof.null_tracker with alloc_minor = allocated; alloc_major = allocated });
    let result =
      match f () with
      | p ->
          left := -1;
          Some p
      | exception Exit -> None
    in
    Gc.Memprof.stop ();
    after result;
    if !interrupted then go (n + 1) else n
  in
  let moments = go 0 in
  if moments < 2 then failwith "hardly interrupted"

(* A handler raises while an operation is being started: its buffer does not go to another one while
   the kernel may access it, and others do not wait for its end for ever. *)
let interrupted_starts () =
  let path = file "interrupted starts" in
  let open_file () = File.openfile path [ O_RDWR; O_CREAT; O_CLOEXEC ] 0o600 in
  let t = Lwt_main.run (open_file ()) in
  let size = 4096 in
  let write letter pos = File.pwrite_exactly_bytes t (Bytes.make size letter) ~pos 0 size in
  let intact _ =
    Lwt_main.run
      (let letters = [ 'a'; 'b'; 'c'; 'd' ] in
       let* () = Lwt.join (List.mapi (fun i letter -> write letter (i * size)) letters) in
       let text = Bytes.create (4 * size) in
       let* () = File.pread_exactly_bytes t text ~pos:0 0 (4 * size) in
       Alcotest.(check bool)
         "own buffers" true
         (String.concat "" (List.map (fun letter -> String.make size letter) letters)
         = Bytes.to_string text);
       (* The position is free. Beyond the four blocks, since a write may still be in flight. *)
       Lwt.map ignore (File.lseek t (8 * size) SEEK_SET))
  in
  let bytes = Bytes.make size 'x' in
  intact ();
  interrupted_at_each_allocation
    (fun () -> File.pwrite_bytes t bytes ~pos:(8 * size) 0 size)
    intact;
  interrupted_at_each_allocation (fun () -> File.write_bytes t bytes 0 size) intact;
  interrupted_at_each_allocation
    (fun () -> Lwt.join [ Lwt.map ignore (File.write_bytes t bytes 0 size); File.fsync t ])
    intact;
  Lwt_main.run (File.close t);
  let descriptors () = Array.length (Sys.readdir "/proc/self/fd") in
  let before = descriptors () in
  interrupted_at_each_allocation open_file (fun opened ->
      match Option.map outcome opened with
      | None -> Lwt_main.run (Lwt.map ignore (nop ()))
      | Some result -> (
          match (Lwt_main.run result, Option.map Lwt.state opened) with
          | "ok", Some (Return t) -> Lwt_main.run (File.close t)
          | _ -> ()));
  let rec settled n =
    if descriptors () > before && n > 0 then begin
      Lwt_main.run (Lwt_unix.sleep 0.01);
      settled (n - 1)
    end
  in
  settled 500;
  Alcotest.(check int) "descriptors" before (descriptors ())

(* What a reader, a writer or a channel has started and not ended is known to be running. *)
let interrupted_transfers () =
  let module Transfer = Ringway_lwt__Transfer in
  let transfer = Transfer.create () and ended = ref 0 in
  interrupted_at_each_allocation
    (fun () -> Transfer.start transfer Operation.nop (fun _ -> incr ended))
    (fun _ ->
      let running = Transfer.is_running transfer in
      ended := 0;
      Lwt_main.run (Lwt.map ignore (nop ()));
      while Transfer.is_running transfer do
        Lwt_main.run (Lwt.map ignore (nop ()))
      done;
      Alcotest.(check int) "ended" (Bool.to_int running) !ended)

(* While another thread waits in the queue, a second operation is cancelled during the allocations
   of the first cancel, as by a finaliser. (ocamlopt reads a field after an allocation in the same
   expression, and bytecode before it.) *)
let cancelled_during_a_cancel () =
  let backend = List.hd (Way.backends ()) in
  let dispatcher = Dispatcher.create (Queue.create ~backend ()) in
  let input, output = Unix.pipe ~cloexec:true () in
  let ended = ref 0 in
  let start () =
    Dispatcher.start dispatcher (Operation.poll input Operation.pollin) (fun _ -> incr ended)
  in
  let first = start () in
  let second = start () in
  let drive () =
    for _ = 1 to 5 do
      if !ended < 2 then begin
        Dispatcher.submit_and_wait dispatcher ~block:true ~timeout_ns:300_000_000;
        Dispatcher.deliver dispatcher
      end
    done
  in
  let thread = Thread.create drive () in
  while not (Dispatcher.is_busy dispatcher) do
    Thread.delay 0.001
  done;
  let once = ref true in
  let allocated (_ : Gc.Memprof.allocation) =
    if !once then begin
      once := false;
      Dispatcher.cancel dispatcher second
    end;
    None
  in
  ignore
    (Gc.Memprof.start ~sampling_rate:1. ~callstack_size:0
       { Gc.Memprof.null_tracker with alloc_minor = allocated; alloc_major = allocated });
  Dispatcher.cancel dispatcher first;
  Gc.Memprof.stop ();
  Thread.join thread;
  Alcotest.(check bool) "both cancelled" true (not !once);
  Alcotest.(check int) "ended" 2 !ended;
  Dispatcher.abandon dispatcher;
  Unix.close input;
  Unix.close output

(* Another thread delivers what was withdrawn while this one adds to the backlog: at its first
   allocation, at its second, and so on. *)
let started_during_a_delivery () =
  let backend = List.hd (Way.backends ()) in
  let dispatcher = Dispatcher.create (Queue.create ~backend ()) in
  let input, output = Unix.pipe ~cloexec:true () in
  let stop = ref false and rounds = ref 0 in
  let start operation = Dispatcher.start dispatcher operation ignore in
  let waits = start (Operation.poll input Operation.pollin) in
  let drive () =
    while not !stop do
      Dispatcher.submit_and_wait dispatcher ~block:true ~timeout_ns:50_000_000;
      Dispatcher.deliver dispatcher;
      incr rounds
    done
  in
  let thread = Thread.create drive () in
  let wait_for_round () =
    let last = !rounds in
    while !rounds = last || not (Dispatcher.is_busy dispatcher) do
      Thread.delay 0.001
    done
  in
  let rec go n =
    wait_for_round ();
    Dispatcher.cancel dispatcher (start Operation.nop);
    let left = ref n and this = Thread.self () in
    let allocated (_ : Gc.Memprof.allocation) =
      if Thread.self () == this then begin
        if !left = 0 then wait_for_round ();
        decr left
      end;
      None
    in
    ignore
      (Gc.Memprof.start ~sampling_rate:1. ~callstack_size:0
         { Gc.Memprof.null_tracker with alloc_minor = allocated; alloc_major = allocated });
    let request = start Operation.nop in
    Gc.Memprof.stop ();
    wait_for_round ();
    wait_for_round ();
    Alcotest.(check bool) "ended" false (Dispatcher.is_pending request);
    if !left < 0 then go (n + 1)
  in
  go 0;
  stop := true;
  Dispatcher.cancel dispatcher waits;
  Thread.join thread;
  Dispatcher.abandon dispatcher;
  Unix.close input;
  Unix.close output

(* Another thread closes the queue meanwhile: the operation ends nevertheless. *)
let started_during_a_close () =
  let backend = List.hd (Way.backends ()) in
  let input, output = Unix.pipe ~cloexec:true () in
  let rec go n =
    let dispatcher = Dispatcher.create (Queue.create ~backend ()) in
    let start operation = Dispatcher.start dispatcher operation ignore in
    ignore (start (Operation.poll input Operation.pollin) : Dispatcher.request);
    let closed = ref false in
    let drive () =
      Dispatcher.submit_and_wait dispatcher ~block:true ~timeout_ns:50_000_000;
      Dispatcher.abandon dispatcher;
      closed := true
    in
    let thread = Thread.create drive () in
    while not (Dispatcher.is_busy dispatcher || !closed) do
      Thread.delay 0.001
    done;
    let left = ref n and this = Thread.self () in
    let allocated (_ : Gc.Memprof.allocation) =
      if Thread.self () == this then begin
        while !left = 0 && not !closed do
          Thread.delay 0.001
        done;
        decr left
      end;
      None
    in
    ignore
      (Gc.Memprof.start ~sampling_rate:1. ~callstack_size:0
         { Gc.Memprof.null_tracker with alloc_minor = allocated; alloc_major = allocated });
    let request = try Some (start Operation.nop) with Queue.Misuse _ -> None in
    Gc.Memprof.stop ();
    Thread.join thread;
    Lwt_main.run (Lwt.bind (Lwt.pause ()) Lwt.pause);
    Alcotest.(check bool)
      "ended" false
      (Option.fold ~none:false ~some:Dispatcher.is_pending request);
    if !left < 0 then go (n + 1)
  in
  go 0;
  Unix.close input;
  Unix.close output

(* The kernel takes nothing at the moment, and no timer says when to try again: neither is the queue
   given up, nor does the loop wait for operations that are not submitted. *)
let refused_for_a_moment () =
  let with_failing_enters try_again =
    Limits.no_timers true;
    with_dispatcher (fun dispatcher ->
        let fd = fifo () in
        let pending = read_one fd (Buffer.create 1) in
        let* () = Lwt_unix.sleep 0.01 in
        Limits.fail_enters 3 ~try_again;
        let* n = nop () in
        Alcotest.(check int) "result" 0 n;
        Limits.no_timers false;
        Alcotest.(check int) "has failed" 0 (Limits.failing_enters ());
        Alcotest.(check bool) "goes on" true (Dispatcher.is_usable dispatcher);
        write_one fd;
        let* n = pending in
        Alcotest.(check int) "the other" 1 n;
        Unix.close fd;
        Lwt.return_unit)
  in
  if not (Way.is "uring") then Lwt.return_unit
  else
    let* () = with_failing_enters true in
    with_failing_enters false

(* Handlers raise at any moment. No operation is lost or performed twice. The dispatcher is driven
   as our engine does, since Lwt's own functions do not survive this. *)
let interrupted_everywhere () =
  let backend = List.hd (Way.backends ()) in
  let dispatcher = Dispatcher.create (Queue.create ~backend ~capacity:40 ()) in
  let completed = ref 0 and interrupted = ref 0 and started = ref 0 in
  let total = 20_000 in
  (* Only where the test expects it. *)
  let raising = ref false in
  let handle _ =
    if !raising then begin
      raising := false;
      raise Sys.Break
    end
  in
  let previous = Sys.signal Sys.sigalrm (Signal_handle handle) in
  let timer interval =
    ignore (Unix.setitimer ITIMER_REAL { it_interval = interval; it_value = interval })
  in
  timer 0.0002;
  let drive ~block =
    Dispatcher.submit_and_wait dispatcher ~block ~timeout_ns:(-1);
    Dispatcher.deliver dispatcher
  in
  let rec go () =
    match
      raising := true;
      while !started < total do
        (* A handler may raise after the start: then the operation is one more. *)
        let (_ : Dispatcher.request) =
          Dispatcher.start dispatcher Operation.nop (fun _ -> incr completed)
        in
        incr started;
        if !started mod 50 = 0 then drive ~block:(!started mod 100 = 0)
      done;
      raising := false
    with
    | () -> ()
    | exception Sys.Break ->
        incr interrupted;
        go ()
  in
  go ();
  timer 0.;
  Sys.set_signal Sys.sigalrm previous;
  while Dispatcher.in_flight dispatcher > 0 do
    drive ~block:true
  done;
  Dispatcher.abandon dispatcher;
  if !interrupted = 0 then Alcotest.fail "never interrupted";
  (* A handler that raises at the beginning of a callback replaces it. *)
  if !completed > total + !interrupted || !completed < total - !interrupted then
    Alcotest.failf "%d of %d, interrupted %d times" !completed total !interrupted

(* The loop runs on another thread, in another domain, and here again. *)
let moved () =
  let fd = fifo () in
  let pending = ref (read_one fd (Buffer.create 1)) in
  Lwt_main.run (Lwt.map ignore (nop ()));
  let check () =
    let result =
      Lwt_main.run
        (let* _ = nop () in
         Alcotest.(check bool) "goes on" true (Lwt.is_sleeping !pending);
         write_one fd;
         outcome !pending)
    in
    Alcotest.(check string) "pending" "ok" result;
    pending := read_one fd (Buffer.create 1);
    Lwt_main.run (Lwt.map ignore (nop ()))
  in
  Other_domain.run check;
  check ();
  Other_domain.run check;
  Lwt.cancel !pending;
  write_one fd;
  Lwt_main.run (Lwt.map ignore (nop ()));
  Unix.close fd

(* ---- Allocation ----------------------------------------------------------------------------- *)

let allocation () =
  let* dispatcher = Lwt.return (Dispatcher.current ()) in
  ignore dispatcher;
  let fd = patterned 64 in
  let buffers = Array.init 32 (fun _ -> Buffer.create block) in
  let rec reads buffer n =
    if n = 0 then Lwt.return_unit
    else
      let* _ =
        Promise.run "read" ""
          (Operation.read fd buffer ~off:0 ~len:block ~pos:(n land 63 * block))
          Fun.id
      in
      reads buffer (n - 1)
  in
  let all n = Lwt.join (Array.to_list (Array.map (fun buffer -> reads buffer n) buffers)) in
  let* () = all 100 in
  let before = Gc.quick_stat () in
  let* () = all 3125 in
  let after = Gc.quick_stat () in
  let operations = 100_000. in
  let minor = (after.minor_words -. before.minor_words) /. operations in
  let promoted = (after.promoted_words -. before.promoted_words) /. operations in
  let major = (after.major_words -. before.major_words) /. operations in
  Printf.printf "words per operation: minor %.1f, promoted %.2f, major %.2f\n%!" minor promoted
    major;
  (* Nothing is allocated in the major heap itself; what is in flight at a minor collection is
     promoted. *)
  Alcotest.(check bool) "minor" true (minor < 200.);
  Alcotest.(check bool) "major" true (major -. promoted < 0.1);
  Alcotest.(check bool) "promoted" true (promoted < 4.);
  Unix.close fd;
  Lwt.return_unit

(* ---- Limits --------------------------------------------------------------------------------- *)

(* In children, which have no queue yet. *)
let use_files () =
  Unix.putenv "RINGWAY_BACKEND" "";
  Lwt_main.run
    (let path = file (Printf.sprintf "limits %d" (Unix.getpid ())) in
     let* file = File.openfile path [ O_RDWR; O_CREAT ] 0o600 in
     let* n = File.write_string file "data" 0 4 in
     assert (n = 4);
     let bytes = Bytes.create 10 in
     let* n = File.pread_bytes file bytes ~pos:0 0 10 in
     assert (Bytes.sub_string bytes 0 n = "data");
     let* () = File.fsync file in
     let* () = File.close file in
     Path.unlink path)

let backend () = Queue.backend_name (Queue.backend (Dispatcher.queue (Dispatcher.current ())))

let refused () =
  let in_child ~io_uring ~aio expected =
    Limits.in_child (fun () ->
        Limits.refuse ~io_uring ~aio;
        if not (Engine.installed ()) then begin
          match Engine.install () with
          | Ok () -> failwith "installed"
          | Error "" -> failwith "no reason"
          | Error _ -> ()
        end;
        use_files ();
        if backend () <> expected then failwith ("on " ^ backend ());
        if Dispatcher.explain () = "" then failwith "no explanation")
  in
  in_child ~io_uring:true ~aio:false "kaio";
  in_child ~io_uring:true ~aio:true "threads"

(* The queue is there, and its threads cannot have the descriptor that tells of their results. *)
let no_descriptor_for_threads () =
  let path = file "read without descriptors" in
  Unix.close (Unix.openfile path [ O_WRONLY; O_CREAT; O_CLOEXEC ] 0o600);
  Limits.in_child (fun () ->
      Lwt_main.run (Lwt.map ignore (nop ()));
      let fd = Unix.openfile path [ O_RDONLY; O_CLOEXEC ] 0 in
      Limits.set_descriptors 40;
      (try
         while true do
           ignore (Unix.dup Unix.stderr)
         done
       with Unix.Unix_error (EMFILE, _, _) -> ());
      let read = Operation.read fd (Buffer.create 1) ~off:0 ~len:1 ~pos:0 in
      if Lwt_main.run (Promise.run "read" "" read Fun.id) <> 0 then failwith "not the end")

(* No queue can be created: an exception, and no loop that hangs. *)
let no_descriptors_at_all () =
  Limits.in_child (fun () ->
      Limits.set_descriptors 3;
      match Lwt_main.run (outcome (nop ())) with
      | "Unix.Unix_error(Unix.EMFILE, \"nop\", \"\")" -> ()
      | result -> failwith result)

(* A file that the limit keeps from having a queue is closed nevertheless. *)
let closed_without_descriptors () =
  Limits.in_child (fun () ->
      let fd = Unix.openfile Sys.executable_name [ O_RDONLY; O_CLOEXEC ] 0 in
      let t = File.of_unix_file_descr fd in
      Limits.set_descriptors 3;
      Lwt_main.run (File.close t);
      match Unix.fstat fd with
      | _ -> failwith "open"
      | exception Unix.Unix_error (EBADF, _, _) -> ())

(* Finalisers start operations, whatever was being allocated: none is lost, and no buffer has two
   users. *)
let finalisers () =
  let previous = Gc.get () in
  Gc.set { previous with space_overhead = 20; minor_heap_size = 4096 };
  let started = ref 0 and ended = ref 0 and in_finaliser = ref false in
  let start () =
    incr started;
    Lwt.on_any (nop ()) (fun _ -> incr ended) (fun _ -> ())
  in
  let[@inline never] garbage () =
    Gc.finalise
      (fun (_ : int ref) ->
        if not !in_finaliser then begin
          in_finaliser := true;
          start ();
          start ();
          in_finaliser := false
        end)
      (ref 0)
  in
  let rounds = 3 and operations = 3_000 in
  let rec round n =
    if n = 0 then Lwt.return_unit
    else
      let* () =
        with_dispatcher ~capacity:(4 * operations) (fun _ ->
            for _ = 1 to operations do
              garbage ();
              start ()
            done;
            let rec settle left =
              if !ended = !started || left = 0 then Lwt.return_unit
              else
                let* () = Lwt_unix.sleep 0.001 in
                settle (left - 1)
            in
            settle 10_000)
      in
      round (n - 1)
  in
  let* () = round rounds in
  Gc.set previous;
  Alcotest.(check bool) "finalisers ran" true (!started > rounds * operations);
  Alcotest.(check int) "ended" !started !ended;
  Lwt.return_unit

let () =
  match Sys.argv with
  | [| _; "exit" |] -> prepare_exit ()
  | [| _; "exception" |] ->
      prepare_exit ();
      (* The hook ends the process inside of a callback; at_exit then runs the loop again. *)
      Lwt_main.at_exit (fun () -> Lwt.map ignore (nop ()));
      Lwt.on_success (nop ()) (fun _ -> raise Exit);
      Lwt_main.run (fst (Lwt.wait ()))
  | _ ->
      Way.run "dispatcher"
        [
          ("started by a later hook", Way.lwt started_by_a_later_hook);
          ("other events go on", Way.lwt other_events_go_on);
          ("small reads go on", Way.lwt small_reads_go_on);
          ("exceptions of callbacks", Way.lwt exceptions_of_callbacks);
          ("Sys.Break in a callback", break_in_a_callback);
          ("cancel storm", Way.lwt (storm ?faults:None));
          ( "cancel storm with late completions",
            Way.lwt (storm ~faults:"seed=3 delay=500/20 short=200 retryable=100") );
          ("a late open", Way.lwt late_open);
          ("backlog", Way.lwt backlog); ("refused in the backlog", Way.lwt refused_in_the_backlog);
          ("replaced", Way.lwt replaced);
          ("abandoned", Way.lwt abandoned);
          ("allocation", Way.lwt allocation);
          ("a failed ring", Way.lwt failed_ring);
          ("Lwt_unix.fork", forked ~fork:Lwt_unix.fork);
          ("fork in a callback", forked_in_callback);
          ("exit by an exception", exit_by_exception);
          ("interrupted starts", with_memprof interrupted_starts);
          ("interrupted transfers", with_memprof interrupted_transfers);
          ("interrupted everywhere", interrupted_everywhere);
          ("cancelled during a cancel", with_memprof cancelled_during_a_cancel);
          ("started during a delivery", with_memprof started_during_a_delivery);
          ("started during a close", with_memprof started_during_a_close);
          ("refused for a moment", Way.lwt refused_for_a_moment);
          ("refused system calls", refused);
          ("no descriptor for threads", no_descriptor_for_threads);
          ("no descriptors at all", no_descriptors_at_all);
          ("closed without descriptors", closed_without_descriptors);
          ("finalisers", Way.lwt finalisers);
          (* The last one: OCaml 5 cannot fork any more after it. *)
          ("another thread or domain", moved);
        ]
