(* Tests of the library ringway on each backend: errors and exceptions, what is cancelled, closed,
   forgotten, forked or interrupted meanwhile. conformance.ml has the results of operations;
   torture.ml has the garbage collector. *)

open Ringway

let forever = -1
let errno name = System.constant name
let minus name = -errno name
let check_int what expected found = Alcotest.(check int) what expected found
let check_bool what expected found = Alcotest.(check bool) what expected found

let invalid what f =
  match f () with
  | _ -> Alcotest.failf "%s: Invalid_argument is expected" what
  | exception Invalid_argument _ -> ()

let misuse what f =
  match f () with
  | _ -> Alcotest.failf "%s: Misuse is expected" what
  | exception Queue.Misuse message -> check_bool what true (message <> "")

let fails what expected f =
  match f () with
  | _ -> Alcotest.failf "%s: Error is expected" what
  | exception (Queue.Error { error; message; _ } as raised) ->
      check_bool (what ^ ": " ^ Printexc.to_string raised) true (error = expected);
      check_bool (what ^ " has a message") true (message <> "")

let with_queue ?entries ?capacity ?single_issuer ?close_wait_ms ?faults backend f =
  let queue =
    Backends.retry 2000 (fun () ->
        Queue.create ~backend ?entries ?capacity ?single_issuer ?close_wait_ms ?faults ())
  in
  Fun.protect ~finally:(fun () -> Queue.close queue) (fun () -> f queue)

let with_pipe f =
  let r, w = Unix.pipe ~cloexec:true () in
  Fun.protect
    ~finally:(fun () ->
      Unix.close r;
      Unix.close w)
    (fun () -> f r w)

let counter = ref 0

(* A file with these contents, which is removed. *)
let with_file contents f =
  incr counter;
  let name = Printf.sprintf "queue_test-%d-%d" (Unix.getpid ()) !counter in
  let fd = Unix.openfile name [ O_RDWR; O_CREAT; O_EXCL; O_CLOEXEC ] 0o600 in
  Unix.unlink name;
  Fun.protect
    ~finally:(fun () -> Unix.close fd)
    (fun () ->
      ignore (Unix.write_substring fd contents 0 (String.length contents));
      f fd)

let completions = Queue.Completions.create 64

(* The results by op of all that is in flight. *)
let collect queue =
  let results = Hashtbl.create 16 in
  while Queue.in_flight queue > 0 do
    for i = 0 to Queue.reap queue completions ~min:1 ~timeout_ns:forever - 1 do
      let op = Queue.Completions.op completions i in
      check_bool "one completion" false (Hashtbl.mem results op);
      Hashtbl.add results op (Queue.Completions.result completions i)
    done
  done;
  results

let result queue operation =
  let op = Queue.push queue operation in
  Hashtbl.find (collect queue) op

let descriptors () = Array.length (Sys.readdir "/proc/self/fd")

(* Those of this file. *)
let descriptors_of path =
  let is_one fd =
    try Unix.readlink ("/proc/self/fd/" ^ fd) = path with Unix.Unix_error _ -> false
  in
  List.length (List.filter is_one (Array.to_list (Sys.readdir "/proc/self/fd")))

let until what condition =
  let rec go tries =
    if not (condition ()) then
      if tries = 0 then Alcotest.failf "%s: not within 1000 collections" what
      else begin
        Gc.full_major ();
        Unix.sleepf 0.001;
        go (tries - 1)
      end
  in
  go 1000

(* ---- Buffers and operations ---- *)

let buffers () =
  let b = Buffer.of_string "0123456789" in
  Alcotest.(check string) "to_string" "0123456789" (Buffer.to_string b);
  check_int "length" 10 (Buffer.length b);
  Alcotest.(check string) "sub" "345" (Buffer.to_string (Buffer.sub b 3 3));
  Buffer.blit_from_string "abcdef" 1 b 4 3;
  Alcotest.(check string) "blit_from_string" "0123bcd789" (Buffer.to_string b);
  let bytes = Bytes.make 6 '.' in
  Buffer.blit_to_bytes b 2 bytes 1 4;
  Alcotest.(check string) "blit_to_bytes" ".23bc." (Bytes.to_string bytes);
  Buffer.blit_to_bytes b 10 bytes 6 0;
  let beyond = max_int - 1 in
  List.iter
    (fun (off, at, len) ->
      invalid "blit_to_bytes" (fun () -> Buffer.blit_to_bytes b off bytes at len);
      invalid "blit_from_bytes" (fun () -> Buffer.blit_from_bytes bytes at b off len))
    [
      (-1, 0, 1); (0, -1, 1); (0, 0, -1); (8, 0, 3); (0, 5, 2); (0, 0, 11); (beyond, 0, 2);
      (0, beyond, 2); (0, 0, max_int); (11, 0, 0); (0, 7, 0); (min_int, 0, 1); (0, 0, min_int);
    ];
  invalid "create" (fun () -> Buffer.create (-1));
  invalid "create_aligned" (fun () -> Buffer.create_aligned (-1));
  invalid "create_aligned" (fun () -> Buffer.create_aligned ~align:0 1);
  invalid "create_aligned" (fun () -> Buffer.create_aligned ~align:3 1);
  invalid "create_aligned" (fun () -> Buffer.create_aligned ~align:(-4096) 1);
  invalid "sub" (fun () -> Buffer.sub b 8 3);
  List.iter
    (fun (align, n) ->
      check_int "length" n (Buffer.length (Buffer.create_aligned ~align n)))
    [ (1, 0); (1, 5); (512, 1); (4096, 4096); (4096, 0); (1 lsl 20, 3) ]

(* A direct read fails with EINVAL if a buffer is not aligned as promised. *)
let aligned backend () =
  let name = Printf.sprintf "aligned-%d" (Unix.getpid ()) in
  let fd = System.openfile name (errno "O_RDWR" lor errno "O_CREAT" lor Operation.o_direct) 0o600 in
  if fd < 0 then Backends.skip "no direct I/O on this file system"
  else begin
    let fd = Operation.descriptor_of_result fd in
    Unix.unlink name;
    Fun.protect ~finally:(fun () -> Unix.close fd) @@ fun () ->
    let direct = Direct_io.get fd in
    List.iter
      (fun n -> check_bool "a power of two" true (n > 0 && n land (n - 1) = 0))
      [ direct.memory; direct.offset ];
    check_bool "max_request" true (direct.max_request >= 0);
    check_bool "untorn" true
      (direct.untorn_min <= direct.untorn_max
      && (direct.untorn_max > 0) = (direct.untorn_max_segments > 0));
    with_queue backend @@ fun queue ->
    let out = Buffer.create_aligned 8192 in
    Bigarray.Array1.fill out 'x';
    check_int "write" 8192 (result queue (Operation.write fd out ~off:0 ~len:8192 ~pos:0));
    for _ = 1 to 10 do
      let back = Buffer.create_aligned 4096 in
      check_int "read" 4096 (result queue (Operation.read fd back ~off:0 ~len:4096 ~pos:4096));
      check_bool "bytes" true (Buffer.to_string back = String.make 4096 'x')
    done
  end;
  match Direct_io.get (Operation.descriptor_of_result 1_000_000) with
  | _ -> Alcotest.fail "EBADF is expected"
  | exception Unix.Unix_error (EBADF, _, _) -> ()

(* An untorn write is made, or refused with the reason; never made as a plain one. *)
let untorn backend () =
  with_file "" @@ fun fd ->
  with_queue backend @@ fun queue ->
  let page = Buffer.create_aligned 4096 in
  let refused operation =
    match Queue.push queue operation with
    | _ -> Alcotest.fail "it was accepted"
    | exception Queue.Error { error; message; _ } -> (error, message)
  in
  (* The file is not open for direct I/O. *)
  let write = Operation.write fd page ~off:0 ~len:4096 ~pos:0 in
  let error, message = refused (Operation.untorn write) in
  check_bool message true (error = EOPNOTSUPP && message <> "");
  check_int "size" 0 (Unix.fstat fd).st_size;
  let error, _ = refused (Operation.untorn (Operation.read fd page ~off:0 ~len:4096 ~pos:0)) in
  check_bool "a read" true (error = EINVAL)

(* Bytes are read and written as without it, and a refusal has a reason. *)
let dont_cache backend () =
  with_file "" @@ fun fd ->
  with_queue backend @@ fun queue ->
  let buffer = Buffer.create_aligned 8192 in
  Bigarray.Array1.fill buffer 'x';
  let run operation = result queue (Operation.dont_cache operation) in
  check_int "write" 8192 (run (Operation.write fd buffer ~off:0 ~len:8192 ~pos:0));
  let back = Buffer.create_aligned 8192 in
  check_int "read" 8192 (run (Operation.read fd back ~off:0 ~len:8192 ~pos:0));
  check_bool "bytes" true (Buffer.to_string back = String.make 8192 'x');
  check_int "readv" 8192 (run (Operation.readv fd [| back |] ~pos:0));
  (match Queue.explain_dont_cache queue fd with
  | None -> ()
  | Some reason -> check_bool reason true (String.length reason > 20));
  match Queue.push queue (Operation.dont_cache (Operation.fsync fd)) with
  | _ -> Alcotest.fail "it was accepted"
  | exception Queue.Error { error = EINVAL; _ } -> ()

let arguments () =
  let fd = Unix.stdin and b = Buffer.create 10 in
  let wide = 1 lsl 32 in
  List.iteri
    (fun i f -> invalid (string_of_int i) f)
    [
      (fun () -> Operation.read fd b ~off:(-1) ~len:1 ~pos:0);
      (fun () -> Operation.read fd b ~off:0 ~len:(-1) ~pos:0);
      (fun () -> Operation.read fd b ~off:0 ~len:11 ~pos:0);
      (fun () -> Operation.read fd b ~off:11 ~len:0 ~pos:0);
      (fun () -> Operation.read fd b ~off:max_int ~len:max_int ~pos:0);
      (fun () -> Operation.read fd b ~off:0 ~len:1 ~pos:(-2));
      (fun () -> Operation.write fd b ~off:5 ~len:6 ~pos:0);
      (fun () -> Operation.write fd b ~off:0 ~len:1 ~pos:min_int);
      (fun () -> Operation.readv fd (Array.make 1025 b) ~pos:0);
      (fun () -> Operation.writev fd [| b |] ~pos:(-2));
      (fun () -> Operation.sync_range fd ~off:(-1) ~len:1 ~flags:0);
      (fun () -> Operation.sync_range fd ~off:0 ~len:1 ~flags:wide);
      (fun () -> Operation.fallocate fd ~mode:(-1) ~off:0 ~len:1);
      (fun () -> Operation.fallocate fd ~mode:0 ~off:0 ~len:(-1));
      (fun () -> Operation.ftruncate fd (-1));
      (fun () -> Operation.fadvise fd ~off:0 ~len:0 ~advice:wide);
      (fun () -> Operation.openat "a\000b" ~flags:0 ~perm:0);
      (fun () -> Operation.openat "a" ~flags:wide ~perm:0);
      (fun () -> Operation.openat "a" ~flags:0 ~perm:(-1));
      (fun () -> Operation.openat ~resolve:(-1) "a" ~flags:0 ~perm:0);
      (fun () -> Operation.statx "a" ~flags:0 ~mask:Stat.basic b);
      (fun () -> Operation.statx "a" ~flags:wide ~mask:0 (Buffer.create Stat.buffer_size));
      (fun () -> Operation.rename "a" "b\000");
      (fun () -> Operation.rename ~flags:wide "a" "b");
      (fun () -> Operation.unlink "\000");
      (fun () -> Operation.mkdir "a" ~perm:wide);
      (fun () -> Operation.symlink ~target:"\000" "a");
      (fun () -> Operation.poll fd (-1));
      (fun () -> Operation.timeout (-1));
      (fun () -> Operation.with_timeout (-1) Operation.nop);
    ];
  invalid "Stat" (fun () -> Stat.stats b);
  let file = Page_cache.create fd in
  invalid "Page_cache" (fun () -> Page_cache.read file b ~off:5 ~len:6 ~pos:0);
  invalid "Page_cache" (fun () -> Page_cache.read_bytes file (Bytes.create 3) ~off:0 ~len:4 ~pos:0);
  invalid "Page_cache" (fun () -> Page_cache.read file b ~off:0 ~len:1 ~pos:(-2));
  invalid "Page_cache" (fun () -> Page_cache.create (Obj.magic (-1)));
  invalid "Completions" (fun () -> Queue.Completions.create 0);
  invalid "Completions" (fun () -> Queue.Completions.op (Queue.Completions.create 3) 3);
  invalid "Completions" (fun () -> Queue.Completions.result (Queue.Completions.create 3) (-1));
  List.iter
    (fun (name, operation) -> Alcotest.(check string) "name" name (Operation.name operation))
    [
      ("nop", Operation.nop); ("readv", Operation.readv fd [||] ~pos:0);
      ("timeout", Operation.timeout 1); ("mkdir", Operation.mkdir "x" ~perm:0);
    ]

(* The read after a write has changed the access time, a tick of the kernel's clock later. *)
let settle fd =
  Unix.sleepf 0.02;
  ignore (Unix.lseek fd 0 SEEK_SET);
  check_int "settle" 1 (Unix.read fd (Bytes.create 1) 0 1);
  Unix.sleepf 0.02

let page_cache () =
  with_file (String.init 10000 (fun i -> Char.chr (i land 255))) @@ fun fd ->
  settle fd;
  let b = Buffer.create 10000 in
  let file = Page_cache.create fd in
  let expected from n = String.init n (fun i -> Char.chr ((from + i) land 255)) in
  check_int "whole" 100 (Page_cache.read file b ~off:50 ~len:100 ~pos:1000);
  check_bool "bytes" true (Buffer.to_string (Buffer.sub b 50 100) = expected 1000 100);
  (* Where the kernel does not tell the end, it is known nevertheless on tmpfs without swap. *)
  let check_end name n pos =
    let got = Page_cache.read file b ~off:0 ~len:100 ~pos in
    check_int name n (if System.end_is_unknown () && got < 0 then -got - 1 else got)
  in
  check_end "to the end" 10 9990;
  check_end "at the end" 0 10000;
  let bytes = Bytes.create 200 in
  ignore (Unix.lseek fd 300 SEEK_SET);
  let pos = Operation.current_position in
  check_int "current position" 200 (Page_cache.read_bytes file bytes ~off:0 ~len:200 ~pos);
  check_bool "bytes" true (Bytes.to_string bytes = expected 300 200);
  check_int "advanced" 500 (Unix.lseek fd 0 SEEK_CUR);
  if System.changes_access_times fd then begin
    (* The next read waits for the journal while a commit is under way. *)
    check_int "a write" 1 (Unix.single_write_substring fd "x" 0 1);
    Page_cache.note_written file;
    check_int "needs a queue" (-1) (Page_cache.read file b ~off:0 ~len:1 ~pos:0)
  end;
  let bad = Page_cache.create (Operation.descriptor_of_result 1_000_000) in
  check_int "bad descriptor: no bytes" (-1) (Page_cache.read bad b ~off:0 ~len:1 ~pos:0)

(* ---- The queue ---- *)

let create_errors () =
  let einval = Unix.EINVAL in
  fails "entries" einval (fun () -> Queue.create ~entries:100_000 ());
  fails "faults" einval (fun () -> Queue.create ~faults:"nonsense=1" ());
  invalid "capacity" (fun () -> Queue.create ~capacity:0 ());
  invalid "capacity" (fun () -> Queue.create ~capacity:(-1) ());
  invalid "capacity" (fun () -> Queue.create ~capacity:0x100_0000 ());
  invalid "threads" (fun () -> Queue.create ~threads:(1 lsl 32) ());
  invalid "close_wait_ms" (fun () -> Queue.create ~close_wait_ms:(-1) ());
  invalid "faults" (fun () -> Queue.create ~faults:(String.make 512 ' ') ());
  let before = descriptors () in
  fails "again" einval (fun () -> Queue.create ~entries:100_000 ());
  check_bool "no descriptor is left" true (descriptors () <= before);
  Alcotest.(check bool) "version" true (String.length Queue.version > 2)

let basics backend () =
  with_queue ~capacity:10 backend @@ fun queue ->
  check_bool "backend" true (Queue.backend queue = backend);
  check_int "capacity" 10 (Queue.capacity queue);
  let start =
    Printf.sprintf "backend %s (forced by the option backend)" (Queue.backend_name backend)
  in
  let text = Queue.explain queue in
  check_bool "explain names the backend" true
    (String.length text >= String.length start
    && String.sub text 0 (String.length start) = start);
  check_int "take of nothing" 0 (Queue.take queue completions);
  check_int "reap of nothing" 0 (Queue.reap queue completions ~min:5 ~timeout_ns:forever);
  with_file "hello" @@ fun fd ->
  let b = Buffer.create 10 in
  check_int "read" 5 (result queue (Operation.read fd b ~off:2 ~len:8 ~pos:0));
  Alcotest.(check string) "bytes" "hello" (Buffer.to_string (Buffer.sub b 2 5));
  check_int "fd" (minus "EBADF")
    (result queue (Operation.fsync (Operation.descriptor_of_result 1_000_000)));
  check_bool "error" true (Queue.error (minus "EBADF") = Unix.EBADF);
  check_bool "error" true (Queue.error (-99999) = Unix.EUNKNOWNERR 99999);
  let stat = Buffer.create (Stat.buffer_size + 1) in
  let odd = Buffer.sub stat 1 Stat.buffer_size in
  let dir = Operation.directory fd in
  let statx = Operation.statx ~dir "" ~flags:Stat.empty_path ~mask:Stat.basic odd in
  check_int "statx of a descriptor" 0 (result queue statx);
  check_bool "stat" true (Stat.stats odd = Unix.fstat fd);
  check_bool "large" true (Stat.large odd = Unix.LargeFile.fstat fd)

let full backend () =
  with_queue ~capacity:3 backend @@ fun queue ->
  with_pipe @@ fun r _ ->
  let poll = Operation.poll r Operation.pollin in
  let ops = List.init 3 (fun _ -> Queue.push queue poll) in
  List.iter
    (fun op -> check_bool "slot" true (Queue.slot op >= 0 && Queue.slot op < 3))
    ops;
  check_int "slots differ" 3 (List.length (List.sort_uniq compare (List.map Queue.slot ops)));
  (match Queue.push queue Operation.nop with
  | _ -> Alcotest.fail "Full is expected"
  | exception Queue.Full -> ());
  (match Queue.push_chain queue [| Operation.nop |] with
  | _ -> Alcotest.fail "Full is expected"
  | exception Queue.Full -> ());
  invalid "a long chain" (fun () -> Queue.push_chain queue (Array.make 4 Operation.nop));
  invalid "an empty chain" (fun () -> Queue.push_chain queue [||]);
  check_int "in flight" 3 (Queue.in_flight queue);
  check_int "cancel_all" 3 (Queue.cancel_all queue);
  check_int "cancel_all again" 0 (Queue.cancel_all queue);
  Hashtbl.iter (fun _ result -> check_int "cancelled" (minus "ECANCELED") result) (collect queue);
  List.iter (fun op -> check_bool "cancel of an old op" false (Queue.cancel queue op)) ops;
  check_bool "cancel of no op" false (Queue.cancel queue Queue.no_op);
  let again = List.init 3 (fun _ -> Queue.push queue Operation.nop) in
  List.iter (fun op -> check_bool "ops differ" false (List.mem op ops)) again;
  List.iter (fun op -> check_bool "cancel of an old op" false (Queue.cancel queue op)) ops;
  Hashtbl.iter (fun _ result -> check_int "not cancelled" 0 result) (collect queue)

let left_over backend () =
  with_queue ~capacity:1000 backend @@ fun queue ->
  let small = Queue.Completions.create 7 in
  for _ = 1 to 600 do ignore (Queue.push queue Operation.nop) done;
  (* More than one wait finds. *)
  Queue.wait queue ~min:max_int ~timeout_ns:forever;
  let stats = Queue.stats queue in
  check_int "none is taken" 0 stats.delivered;
  check_int "all are in flight" 600 stats.in_flight;
  check_int "take" 7 (Queue.take queue small);
  check_int "length" 7 (Queue.Completions.length small);
  check_int "in flight" 593 (Queue.in_flight queue);
  check_int "stats" 593 (Queue.stats queue).in_flight;
  (* What is left counts, so this does not wait for the poll. *)
  with_pipe @@ fun r w ->
  let op = Queue.push queue (Operation.poll r Operation.pollin) in
  Queue.wait queue ~min:200 ~timeout_ns:forever;
  (* A cancellation is submitted whatever is left. *)
  with_pipe @@ fun never _ ->
  let op2 = Queue.push queue (Operation.poll never Operation.pollin) in
  Queue.submit queue;
  check_bool "cancel" true (Queue.cancel queue op2);
  Queue.submit queue;
  ignore (Unix.write_substring w "x" 0 1);
  let taken = ref 7 and seen = ref [] and ended = ref 0 in
  while Queue.in_flight queue > 0 do
    let count = Queue.reap queue small ~min:1 ~timeout_ns:forever in
    (* The kernel may end a wait for rings that earlier tests have closed. *)
    if count = 0 then incr ended;
    check_bool "progress" true (!ended < 100);
    for i = 0 to count - 1 do
      let found = Queue.Completions.op small i in
      if found = op || found = op2 then
        seen := (found = op, Queue.Completions.result small i) :: !seen
    done;
    taken := !taken + count
  done;
  check_int "all" 602 !taken;
  check_bool "poll" true (List.mem (true, Operation.pollin) !seen);
  check_bool "cancelled" true (List.mem (false, minus "ECANCELED") !seen);
  check_int "negative min does not wait" 0 (Queue.reap queue small ~min:min_int ~timeout_ns:forever)

(* Every function that uses the queue. *)
let uses queue op =
  [
    (fun () -> ignore (Queue.push queue Operation.nop));
    (fun () -> ignore (Queue.push_chain queue [| Operation.nop |]));
    (fun () -> Queue.submit queue);
    (fun () -> ignore (Queue.cancel queue op));
    (fun () -> ignore (Queue.cancel_all queue));
    (fun () -> Queue.wait queue ~min:0 ~timeout_ns:0);
    (fun () -> ignore (Queue.take queue completions));
    (fun () -> ignore (Queue.descriptor queue));
    (fun () -> ignore (Queue.stats queue));
    (fun () -> ignore (Queue.backend queue));
    (fun () -> ignore (Queue.explain queue));
    (fun () -> Queue.adopt queue);
  ]

let after_close backend () =
  let queue = Queue.create ~backend ~capacity:7 () in
  let op = Queue.push queue Operation.nop in
  Queue.close queue;
  Queue.close queue;
  List.iteri
    (fun i f -> misuse (string_of_int i) f)
    (uses queue op
    @ [
        (fun () -> Queue.register_buffers queue [| Buffer.create 1 |]);
        (fun () -> Queue.register_file queue Unix.stdin);
        (fun () -> Queue.unregister_file queue Unix.stdin);
      ]);
  check_int "in_flight" 0 (Queue.in_flight queue);
  check_int "capacity" 7 (Queue.capacity queue)

(* Opens whose descriptors nobody takes are closed with the queue: those that were reaped and not
   taken, those that are ready, and those that are in flight. *)
let close_drops_opens backend () =
  let queue = Queue.create ~backend () in
  let opened = Operation.openat "/dev/zero" ~flags:(Operation.open_flags [ O_RDONLY ]) ~perm:0 in
  for _ = 1 to 20 do ignore (Queue.push queue opened) done;
  Queue.wait queue ~min:20 ~timeout_ns:forever;
  let one = Queue.Completions.create 1 in
  check_int "take" 1 (Queue.take queue one);
  let mine = Operation.descriptor_of_result (Queue.Completions.result one 0) in
  for _ = 1 to 20 do ignore (Queue.push queue opened) done;
  Queue.submit queue;
  for _ = 1 to 20 do ignore (Queue.push queue opened) done;
  Queue.close queue;
  check_bool "the one taken is open" true ((Unix.fstat mine).st_kind = S_CHR);
  Unix.close mine;
  (* A thread may close one a little later. *)
  until "descriptors" (fun () -> descriptors_of "/dev/zero" = 0)

(* A finaliser, or another thread, pushes while the results are allocated: its operation is in the
   report too. *)
let close_reports_all backend () =
  match Gc.Memprof.start ~sampling_rate:0. ~callstack_size:0 Gc.Memprof.null_tracker with
  | exception Failure reason -> print_endline ("skipped: " ^ reason)
  | () ->
      Gc.Memprof.stop ();
      let opened =
        Operation.openat "/dev/zero" ~flags:(Operation.open_flags [ O_RDONLY ]) ~perm:0
      in
      List.iter
        (fun before ->
          let queue = Queue.create ~backend () in
          for _ = 1 to before do ignore (Queue.push queue opened) done;
          let late = ref Queue.no_op in
          let push (_ : Gc.Memprof.allocation) =
            if !late = Queue.no_op then late := Queue.push queue opened;
            None
          in
          Gc.Memprof.start ~sampling_rate:1. ~callstack_size:0
            { Gc.Memprof.null_tracker with alloc_minor = push; alloc_major = push };
          let fates = Queue.close_reporting queue in
          Gc.Memprof.stop ();
          check_bool "pushed" true (!late <> Queue.no_op);
          check_int "reported" (before + 1) (List.length fates);
          check_bool "the late one" true (List.mem_assoc !late fates);
          let close = function
            | _, Some result when result >= 0 -> Unix.close (Operation.descriptor_of_result result)
            | _ -> ()
          in
          List.iter close fates;
          until "descriptors" (fun () -> descriptors_of "/dev/zero" = 0))
        [ 0; 1; 5 ]

(* ---- Buffers that the kernel may still access ---- *)

(* A buffer, and whether it has been freed. *)
let watched () =
  let freed = ref false in
  let b = Buffer.create 4096 in
  Gc.finalise (fun _ -> freed := true) b;
  (b, freed)

let collect_garbage () =
  for _ = 1 to 3 do Gc.compact () done

(* These are functions, so that no value stays in a register or on the stack of the test. *)
let[@inline never] push_watched queue fd =
  let b, freed = watched () in
  let v, freed_too = watched () in
  ignore (Queue.push queue (Operation.read fd b ~off:0 ~len:4096 ~pos:0));
  ignore (Queue.push_chain queue [| Operation.nop; Operation.readv fd [| v |] ~pos:0 |]);
  (freed, freed_too)

let[@inline never] reap_all queue = ignore (collect queue)

let rooted_until_completion backend () =
  with_queue ~capacity:8 backend @@ fun queue ->
  with_file (String.make 4096 'q') @@ fun fd ->
  let freed, freed_too = push_watched queue fd in
  collect_garbage ();
  check_bool "before the submission" false (!freed || !freed_too);
  Queue.submit queue;
  collect_garbage ();
  check_bool "in flight" false (!freed || !freed_too);
  Queue.wait queue ~min:3 ~timeout_ns:forever;
  collect_garbage ();
  check_bool "not taken" false (!freed || !freed_too);
  reap_all queue;
  collect_garbage ();
  check_bool "after the completion" true (!freed && !freed_too)

(* More operations in flight than the queue has roots for at first. *)
let rooted_beyond_the_first backend () =
  with_queue ~capacity:200 backend @@ fun queue ->
  let r, w = Unix.pipe ~cloexec:true () in
  let[@inline never] push _ =
    let b, freed = watched () in
    let v, freed_too = watched () in
    let pos = Operation.current_position in
    ignore (Queue.push queue (Operation.read r b ~off:0 ~len:1 ~pos));
    ignore (Queue.push_chain queue [| Operation.readv r [| v |] ~pos |]);
    [ freed; freed_too ]
  in
  let freed = List.concat (List.init 100 push) in
  let count () = List.length (List.filter ( ! ) freed) in
  collect_garbage ();
  check_int "freed before the submission" 0 (count ());
  Queue.submit queue;
  collect_garbage ();
  check_int "freed in flight" 0 (count ());
  Unix.close w;
  reap_all queue;
  Unix.close r;
  collect_garbage ();
  check_int "freed after the completions" 200 (count ())

let released_by_close backend () =
  with_pipe @@ fun r _ ->
  let queue = Queue.create ~backend () in
  let[@inline never] push () =
    let b, freed = watched () in
    let pos = Operation.current_position in
    ignore (Queue.push queue (Operation.read r b ~off:0 ~len:10 ~pos));
    Queue.submit queue;
    freed
  in
  let freed = push () in
  collect_garbage ();
  check_bool "in flight" false !freed;
  Queue.close queue;
  collect_garbage ();
  check_bool "closed" true !freed;
  check_int "the queue itself is still there" 0 (Queue.in_flight queue)

(* ---- Queues that the program forgets ---- *)

let forgotten ?single_issuer backend () =
  Gc.full_major ();
  let before = descriptors () in
  with_pipe @@ fun r w ->
  with_file (String.make 4096 'q') @@ fun fd ->
  let[@inline never] forget () =
    let queue = Queue.create ~backend ?single_issuer () in
    ignore (Queue.push queue Operation.nop);
    let idle = Queue.create ~backend ?single_issuer () in
    ignore (Queue.stats idle);
    let open_ = Operation.openat "/dev/zero" ~flags:0 ~perm:0 in
    ignore (Queue.push queue open_);
    Queue.wait queue ~min:2 ~timeout_ns:forever;
    ignore (Queue.push queue open_);
    ignore (Queue.push queue (Operation.poll r Operation.pollin));
    let b, freed = watched () in
    let pos = Operation.current_position in
    ignore (Queue.push queue (Operation.read r b ~off:0 ~len:10 ~pos));
    ignore (Queue.push queue (Operation.read fd b ~off:0 ~len:4096 ~pos:0));
    Queue.submit queue;
    ignore (Queue.push queue (Operation.timeout 60_000_000_000));
    freed
  in
  let freed = forget () in
  until "the buffer" (fun () -> !freed);
  until "opened files" (fun () -> descriptors_of "/dev/zero" = 0);
  (* Not `=`: threads of an earlier queue may have kept its eventfd until now. *)
  until "descriptors" (fun () -> descriptors () <= before + 3);
  ignore (Unix.write_substring w "abc" 0 3);
  check_int "nothing was read" 3 (Unix.read r (Bytes.create 10) 0 10)

(* Finalisers of the program that close queues, also a queue that is closed already. *)
let finalisers_that_close backend () =
  Gc.full_major ();
  let before = descriptors () in
  let closed = ref 0 in
  let[@inline never] forget () =
    for i = 1 to 5 do
      let queue = Queue.create ~backend () in
      ignore (Queue.push queue Operation.nop);
      if i = 1 then Queue.close queue;
      Gc.finalise
        (fun queue ->
          Queue.close queue;
          incr closed)
        queue
    done
  in
  forget ();
  until "finalisers" (fun () -> !closed = 5);
  until "descriptors" (fun () -> descriptors () <= before)

(* ---- Failures ---- *)

(* The ring fails while operations are in flight: errors, and close gives the buffers back. *)
let failed_ring () =
  if List.mem Queue.Uring (Lazy.force Backends.available) then begin
    let queue = Queue.create ~backend:Uring ~faults:"enters=1" () in
    ignore (Queue.push queue Operation.nop);
    let rec break tries =
      if tries = 0 then Alcotest.fail "the ring does not fail"
      else
        match
          ignore (Queue.push queue Operation.nop);
          Queue.reap queue completions ~min:1 ~timeout_ns:forever
        with
        | _ -> break (tries - 1)
        | exception Queue.Error { operation; message; _ } ->
            check_bool "message" true (message <> "" && operation <> "")
    in
    break 100;
    Queue.close queue;
    check_int "in flight" 0 (Queue.in_flight queue)
  end

(* Operations that are stated to be on sockets: on one, on a pipe, and where that cannot be. *)
let sockets backend () =
  let pos = Operation.current_position in
  let b = Buffer.of_string "0123456789" in
  let back = Buffer.create 10 in
  let read fd = Operation.socket (Operation.read fd back ~off:0 ~len:10 ~pos) in
  let write fd = Operation.socket (Operation.write fd b ~off:0 ~len:5 ~pos) in
  let between queue reader writer =
    let op = Queue.push queue (read reader) in
    ignore (Queue.reap queue completions ~min:0 ~timeout_ns:0);
    check_bool "cancel" true (Queue.cancel queue op);
    check_int "cancelled" (-Operation.ecanceled) (Hashtbl.find (collect queue) op);
    let op = Queue.push queue (Operation.exact (read reader)) in
    let writes = List.map (fun () -> Queue.push queue (write writer)) [ (); () ] in
    let results = collect queue in
    List.iter (fun op -> check_int "write" 5 (Hashtbl.find results op)) writes;
    check_int "exact read" 10 (Hashtbl.find results op);
    Alcotest.(check string) "bytes" "0123401234" (Buffer.to_string back)
  in
  with_queue backend @@ fun queue ->
  with_pipe (between queue);
  let one, other = Unix.socketpair ~cloexec:true PF_UNIX SOCK_STREAM 0 in
  between queue one other;
  Unix.close other;
  check_int "no reader" (minus "EPIPE") (result queue (write one));
  check_int "end" 0 (result queue (read one));
  let at_offset = Operation.read one b ~off:0 ~len:10 ~pos:0 in
  List.iter
    (fun operation ->
      fails "not a transfer of a socket" Unix.EINVAL (fun () ->
          Queue.push queue (Operation.socket operation)))
    [ at_offset; Operation.readv one [| b |] ~pos; Operation.fsync one; Operation.nop ];
  check_int "in flight" 0 (Queue.in_flight queue);
  Unix.close one

(* ---- Registered memory and files ---- *)

let registered backend () =
  with_queue backend @@ fun queue ->
  with_file (String.make 8192 'r') @@ fun fd ->
  let[@inline never] register () =
    let b, freed = watched () in
    match Queue.register_buffers queue [| b |] with
    | () ->
        check_int "read" 4096 (result queue (Operation.read fd b ~off:0 ~len:4096 ~pos:0));
        check_bool "bytes" true (Buffer.to_string b = String.make 4096 'r');
        (true, freed)
    | exception Queue.Error { error = EOPNOTSUPP; message; _ } ->
        check_bool "message" true (message <> "");
        check_bool "has a ring" true (backend <> Queue.Uring);
        (false, freed)
  in
  let registered, freed = register () in
  collect_garbage ();
  check_bool "freed" (not registered) !freed;
  if registered then begin
    fails "none" EINVAL (fun () -> Queue.register_buffers queue [||]);
    Queue.register_file queue fd;
    Queue.register_file queue fd;
    let b = Buffer.create 10 in
    check_int "read" 10 (result queue (Operation.read fd b ~off:0 ~len:10 ~pos:5));
    fails "close of a registered file" EBUSY (fun () -> Queue.push queue (Operation.close fd));
    Queue.unregister_file queue fd;
    fails "twice" ENOENT (fun () -> Queue.unregister_file queue fd);
    let bad = Operation.descriptor_of_result 1_000_000 in
    fails "bad" EBADF (fun () -> Queue.register_file queue bad)
  end
  else fails "file" EOPNOTSUPP (fun () -> Queue.register_file queue fd);
  check_int "still works" 0 (result queue Operation.nop)

(* ---- Signals, threads, domains, fork ---- *)

exception Interrupted

(* A handler that raises may be called in the midst of it. *)
let rec in_the_end f = try f () with _ -> in_the_end f

let with_handler signal handler f =
  let before = Sys.signal signal (Signal_handle handler) in
  Fun.protect ~finally:(fun () -> in_the_end (fun () -> Sys.set_signal signal before)) f

let with_alarm ~every handler f =
  with_handler Sys.sigalrm handler @@ fun () ->
  let set it_value it_interval = ignore (Unix.setitimer ITIMER_REAL { it_value; it_interval }) in
  Fun.protect ~finally:(fun () -> in_the_end (fun () -> set 0. 0.)) (fun () ->
      set every every;
      f ())

let signals backend () =
  with_queue backend @@ fun queue ->
  with_pipe @@ fun r w ->
  let op = Queue.push queue (Operation.poll r Operation.pollin) in
  let calls = ref 0 in
  (* A handler that uses the queue, and one that raises. The alarms repeat, so one that comes just
     before the wait does not matter. *)
  with_alarm ~every:0.01
    (fun _ ->
      incr calls;
      if !calls = 1 then ignore (Queue.push queue Operation.nop))
    (fun () ->
      while !calls < 3 do
        ignore (Queue.reap queue completions ~min:2 ~timeout_ns:forever)
      done);
  (* The operation of the handler, if the signals ended every wait before it. *)
  while Queue.in_flight queue > 1 do
    ignore (Queue.reap queue completions ~min:1 ~timeout_ns:forever)
  done;
  (match
     with_alarm ~every:0.01
       (fun _ -> raise Interrupted)
       (fun () ->
         while true do
           ignore (Queue.reap queue completions ~min:1 ~timeout_ns:forever)
         done)
   with
  | () -> ()
  | exception Interrupted -> ());
  check_int "still in flight" 1 (Queue.in_flight queue);
  ignore (Unix.write_substring w "x" 0 1);
  check_int "poll" Operation.pollin (Hashtbl.find (collect queue) op)

(* Handlers that raise anywhere: every operation that was pushed has one completion, and the reads
   have the right bytes. *)
let signal_storm backend () =
  with_file (String.init 65536 (fun i -> Char.chr (i land 255))) @@ fun fd ->
  with_queue ~capacity:64 backend @@ fun queue ->
  let taken = ref 0 and interrupted = ref 0 in
  (* By slot: where the last operation of the slot reads. *)
  let buffers = Array.init 64 (fun _ -> Buffer.create 512) in
  let armed = ref false in
  let small = Queue.Completions.create 5 in
  let count () =
    for i = 0 to Queue.Completions.length small - 1 do
      let found = Queue.Completions.result small i in
      if found <> 512 && found <> 0 then Alcotest.failf "result %d" found
    done;
    taken := !taken + Queue.Completions.length small;
    Queue.Completions.clear small
  in
  let step i =
    let b = buffers.(i land 63) in
    (try
       ignore (Queue.push queue (Operation.read fd b ~off:0 ~len:512 ~pos:(i land 127)));
       ignore (Queue.push_chain queue [| Operation.nop; Operation.nop |])
     with Queue.Full -> ());
    ignore (Queue.reap queue small ~min:1 ~timeout_ns:forever)
  in
  with_alarm ~every:0.0005
    (fun _ -> if !armed then raise Interrupted)
    (fun () ->
      for i = 1 to 4000 do
        (* A raise in the middle of reap leaves what was taken in [small]. *)
        (try
           armed := true;
           step i;
           armed := false
         with Interrupted ->
           armed := false;
           incr interrupted);
        count ()
      done);
  while Queue.in_flight queue > 0 do
    ignore (Queue.reap queue small ~min:1 ~timeout_ns:forever);
    count ()
  done;
  let stats = Queue.stats queue in
  check_int "every operation has one completion" stats.pushed !taken;
  check_bool "some were interrupted" true (!interrupted > 0)

(* Calls [inside] while another thread waits in the queue for a poll of a pipe. *)
let with_waiting_thread backend inside =
  with_queue backend @@ fun queue ->
  with_pipe @@ fun r w ->
  let op = Queue.push queue (Operation.poll r Operation.pollin) in
  let mine = Queue.Completions.create 4 in
  let rec wait () =
    match Queue.reap queue mine ~min:1 ~timeout_ns:forever with
    | 1 when Queue.Completions.op mine 0 = op -> Ok (Queue.Completions.result mine 0)
    | 0 when Queue.in_flight queue > 0 -> wait () (* The kernel may end a wait. *)
    | count -> Error (Printf.sprintf "%d completions" count)
    (* The other thread was inside [stats]. *)
    | exception Queue.Misuse _ -> wait ()
    | exception error -> Error (Printexc.to_string error)
  in
  let outcome = ref (Error "none") in
  let thread = Thread.create (fun () -> outcome := wait ()) () in
  let rec until_inside () =
    match Queue.stats queue with
    | _ ->
        Thread.yield ();
        until_inside ()
    | exception Queue.Misuse _ -> ()
  in
  until_inside ();
  inside queue;
  ignore (Unix.write_substring w "x" 0 1);
  Thread.join thread;
  match !outcome with
  | Ok result -> check_int "the poll" Operation.pollin result
  | Error text -> Alcotest.fail text

let threads backend () =
  with_waiting_thread backend @@ fun queue ->
  List.iteri (fun i f -> misuse (string_of_int i) f) (uses queue Queue.no_op);
  misuse "close" (fun () -> Queue.close queue)

let in_thread f =
  let outcome = ref (Error Exit) in
  Thread.join (Thread.create (fun () -> outcome := try Ok (f ()) with error -> Error error) ());
  match !outcome with Ok value -> value | Error error -> raise error

let single_issuer backend () =
  let queue = Queue.create ~backend ~single_issuer:true () in
  with_pipe @@ fun r _ ->
  ignore (Queue.push queue (Operation.poll r Operation.pollin));
  Queue.submit queue;
  misuse "wait" (fun () -> in_thread (fun () -> Queue.wait queue ~min:0 ~timeout_ns:0));
  misuse "cancel_all" (fun () -> in_thread (fun () -> Queue.cancel_all queue));
  check_int "in flight" 1 (Queue.in_flight queue);
  (* Another thread may close it. *)
  in_thread (fun () -> Queue.close queue);
  misuse "closed" (fun () -> Queue.submit queue)

let domains backend () =
  match Elsewhere.run with
  | None -> Backends.skip ~expected:true "OCaml 4 has one domain"
  | Some run ->
      with_queue backend @@ fun queue ->
      misuse "push" (fun () -> run (fun () -> Queue.push queue Operation.nop));
      misuse "wait" (fun () -> run (fun () -> Queue.wait queue ~min:0 ~timeout_ns:0));
      misuse "stats" (fun () -> run (fun () -> Queue.stats queue));
      misuse "in_flight" (fun () -> run (fun () -> Queue.in_flight queue));
      check_int "the owner is not disturbed" 0 (result queue Operation.nop);
      let count =
        run (fun () ->
            Queue.adopt queue;
            let mine = Queue.Completions.create 1 in
            ignore (Queue.push queue Operation.nop);
            Queue.reap queue mine ~min:1 ~timeout_ns:forever)
      in
      check_int "adopted" 1 count;
      misuse "no longer the owner" (fun () -> Queue.submit queue);
      Queue.adopt queue;
      check_int "adopted back" 0 (result queue Operation.nop);
      (* Each domain with a queue of its own. *)
      let total =
        run (fun () ->
            with_queue backend (fun queue ->
                for _ = 1 to 100 do ignore (Queue.push queue Operation.nop) done;
                let mine = Queue.Completions.create 100 in
                Queue.reap queue mine ~min:100 ~timeout_ns:forever))
      in
      check_int "another domain's queue" 100 total

(* Runs the function in a forked child; fails if it raises there. *)
let in_child f =
  match Unix.fork () with
  | 0 ->
      let code =
        try
          f ();
          0
        with error ->
          prerr_endline ("child: " ^ Printexc.to_string error);
          1
      in
      Unix._exit code
  | child -> (
      match snd (Unix.waitpid [] child) with
      | WEXITED 0 -> ()
      | WEXITED n -> Alcotest.failf "the child exited with %d" n
      | WSIGNALED n | WSTOPPED n -> Alcotest.failf "the child got signal %d" n)

let expect_forked queue =
  List.iteri (fun i f -> fails (string_of_int i) Unix.ECHILD f) (uses queue Queue.no_op);
  Queue.close queue;
  Queue.close queue

(* Waits until all other threads sleep: one that is starting holds locks of Rust's standard library
   and of a sanitizer, without which a child could start none. *)
let rec wait_for_threads () =
  let sleeps task =
    match open_in ("/proc/self/task/" ^ task ^ "/stat") with
    | exception Sys_error _ -> true
    | stat ->
        Fun.protect ~finally:(fun () -> close_in stat) @@ fun () ->
        int_of_string task = Unix.getpid ()
        || (match input_line stat with
           | line -> List.mem "S" (String.split_on_char ' ' line)
           | exception (Sys_error _ | End_of_file) -> true)
  in
  if not (Array.for_all sleeps (Sys.readdir "/proc/self/task")) then begin
    Unix.sleepf 0.001;
    wait_for_threads ()
  end

let fork_no_domains f =
  (* OCaml 5 refuses to fork once a domain has been created. *)
  match f () with () -> () | exception Failure text -> Backends.skip ~expected:true text

let fork backend () =
  fork_no_domains @@ fun () ->
  with_queue backend @@ fun queue ->
  with_pipe @@ fun r w ->
  let nop = Queue.push queue Operation.nop in
  let op = Queue.push queue (Operation.poll r Operation.pollin) in
  (* The completion of the first is for the parent alone. *)
  Queue.wait queue ~min:1 ~timeout_ns:forever;
  wait_for_threads ();
  in_child (fun () ->
      expect_forked queue;
      (* The child's own. *)
      with_queue backend (fun queue -> check_int "nop" 0 (result queue Operation.nop)));
  (* A child whose finaliser finds its parent's queue does not hang and does no harm. *)
  in_child (fun () -> collect_garbage ());
  ignore (Unix.write_substring w "x" 0 1);
  let results = collect queue in
  check_int "the parent's nop" 0 (Hashtbl.find results nop);
  check_int "the parent's poll" Operation.pollin (Hashtbl.find results op)

(* The numbers of the open descriptors. *)
let descriptors () =
  let is_open name = Sys.file_exists ("/proc/self/fd/" ^ name) in
  List.filter is_open (Array.to_list (Sys.readdir "/proc/self/fd"))

(* Generation after generation: each child closes its parent's queue, whose operations go on. *)
let forks_keep_no_descriptors backend () =
  fork_no_domains @@ fun () ->
  with_pipe @@ fun r w ->
  let before = descriptors () in
  let rec generation left =
    with_queue backend @@ fun queue ->
    ignore (Queue.descriptor queue);
    let op = Queue.push queue (Operation.poll r Operation.pollin) in
    (* The threads run it on kaio and threads. *)
    let until = Queue.push queue (Operation.timeout 3_600_000_000_000) in
    Queue.submit queue;
    wait_for_threads ();
    in_child (fun () ->
        Queue.close queue;
        (* (Threads of an earlier queue may have closed theirs since.) *)
        let kept = List.filter (fun fd -> not (List.mem fd before)) (descriptors ()) in
        Alcotest.(check (list string)) "descriptors" [] kept;
        if left > 0 then generation (left - 1));
    check_int "in flight" 2 (Queue.in_flight queue);
    ignore (Unix.write_substring w "x" 0 1);
    check_bool "cancelled" true (Queue.cancel queue until);
    let results = collect queue in
    check_int "the poll" Operation.pollin (Hashtbl.find results op);
    check_int "the timeout" (-Operation.ecanceled) (Hashtbl.find results until);
    ignore (Unix.read r (Bytes.create 1) 0 1)
  in
  generation 2

let fork_while_waiting backend () =
  fork_no_domains @@ fun () ->
  with_waiting_thread backend @@ fun queue -> in_child (fun () -> expect_forked queue)

(* ---- Random operations ---- *)

let () =
  (* A test that hangs ends the program. Some tests use SIGALRM. All of them together take longer
     where the machine is busy. *)
  let limit = Unix.getpid () in
  ignore
    (Thread.create
       (fun () ->
         Thread.delay 600.;
         prerr_endline "queue_test: not done within 600 s";
         Unix.kill limit Sys.sigkill)
       ());
  let each tests =
    List.concat_map
      (fun backend ->
        List.map
          (fun (name, test) ->
            Alcotest.test_case (Queue.backend_name backend ^ ": " ^ name) `Quick (test backend))
          tests)
      (Lazy.force Backends.available)
  in
  let once name test = Alcotest.test_case name `Quick test in
  Alcotest.run "ringway"
    [
      ( "values",
        [
          once "buffers" buffers; once "arguments" arguments;
          once "page cache" page_cache;
        ] );
      ("creating", [ once "errors" create_errors ]);
      (* Before any domain is created. *)
      ( "fork",
        each
          [
            ("child", fork);
            ("while a thread waits", fork_while_waiting);
            ("descriptors", forks_keep_no_descriptors);
          ] );
      ( "queue",
        each
          [
            ("basics", basics); ("direct I/O", aligned);
            ("untorn writes", untorn); ("transfers that leave no pages", dont_cache);
            ("full", full);
            ("completions that are left", left_over); ("sockets", sockets);
            ("after close", after_close); ("close drops opens", close_drops_opens);
            ("close reports all", close_reports_all); ("registered", registered);
          ]
        @ [ once "a ring that fails" failed_ring ] );
      ( "memory",
        each
          [
            ("rooted until the completion", rooted_until_completion);
            ("rooted beyond the first", rooted_beyond_the_first);
            ("released by close", released_by_close);
            ("forgotten", forgotten ?single_issuer:None);
            ("forgotten, single issuer", forgotten ~single_issuer:true);
            ("finalisers that close", finalisers_that_close);
          ] );
      ("signals", each [ ("end a wait", signals); ("raise anywhere", signal_storm) ]);
      ("threads", each [ ("misuse", threads); ("single issuer", single_issuer) ]);
      ("domains", each [ ("misuse and adoption", domains) ]);
    ]
