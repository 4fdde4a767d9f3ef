(* The garbage collector against operations in flight: minor and major collections and compactions
   between any two steps, from a signal handler too; programs that forget buffers, completions and
   queues; queues that are closed without waiting; and another thread that collects while a stub has
   released the runtime lock. Every byte is checked, and guards that are
   allocated where freed buffers were show a write to freed memory, which no sanitizer sees if the
   kernel makes it. Usage: torture [ROUNDS] *)

open Ringway

let size = 1 lsl 20
let byte position =
  Char.unsafe_chr ((position lxor (position lsr 8) lxor (position lsr 16)) land 255)

let random = Random.State.make [| 11 |]
let draw n = Random.State.int random n

(* Guards: buffers that nothing but this program writes to. *)
let guards = Array.make 64 Buffer.empty
let guard_byte i = Char.unsafe_chr (0x80 lor i)

let check_guard i =
  let b = guards.(i) in
  for j = 0 to Buffer.length b - 1 do
    if b.{j} <> guard_byte i then
      failwith (Printf.sprintf "byte %d of guard %d is %C: a write to freed memory" j i b.{j})
  done

let new_guard length =
  let i = draw (Array.length guards) in
  check_guard i;
  let b = Buffer.create length in
  Bigarray.Array1.fill b (guard_byte i);
  guards.(i) <- b

(* Garbage in the minor and the major heap. *)
let garbage () = ignore (Sys.opaque_identity (List.init (draw 50) (fun i -> Bytes.create (i * 8))))

let disturb () =
  garbage ();
  match draw 40 with
  | 0 -> Gc.compact ()
  | 1 -> Gc.full_major ()
  | 2 | 3 -> ignore (Gc.major_slice 0)
  | n when n < 20 -> Gc.minor ()
  | _ -> ()

type expected = { buffers : (Buffer.t * int * int) list; (* with offset and length *) at : int }

(* All was read, as the file is long enough, and nothing else was written. *)
let check expected result =
  let length = List.fold_left (fun sum (_, _, len) -> sum + len) 0 expected.buffers in
  if result <> length then failwith (Printf.sprintf "a read of %d bytes: %d" length result);
  let left = ref result and position = ref expected.at in
  List.iter
    (fun ((b : Buffer.t), off, len) ->
      for j = 0 to Buffer.length b - 1 do
        let wanted =
          if j >= off && j < off + min len !left then byte (!position + j - off) else '\xee'
        in
        if b.{j} <> wanted then
          failwith (Printf.sprintf "byte %d of a buffer is %C, expected %C" j b.{j} wanted)
      done;
      position := !position + min len !left;
      left := !left - min len !left)
    expected.buffers

let fresh ~aligned length =
  let b = if aligned then Buffer.create_aligned length else Buffer.create length in
  Bigarray.Array1.fill b '\xee';
  b

(* A random read: what it does, and what it is to give. *)
let random_read files =
  let fd, aligned = files.(draw (Array.length files)) in
  let unit = if aligned then 4096 else 1 in
  let at = draw (size / 2) / unit * unit in
  let length () = (1 + draw (if aligned then 4 else 5000)) * unit in
  if draw 2 = 0 then begin
    let skip = draw 3 * unit and len = length () in
    let b = fresh ~aligned (skip + len + unit) in
    (Operation.read fd b ~off:skip ~len ~pos:at, { buffers = [ (b, skip, len) ]; at })
  end
  else begin
    let vector = Array.init (1 + draw 4) (fun _ -> fresh ~aligned (length ())) in
    let parts = List.map (fun b -> (b, 0, Buffer.length b)) (Array.to_list vector) in
    (Operation.readv fd vector ~pos:at, { buffers = parts; at })
  end

(* What the program remembers of an operation: nothing, in the half that it forgets. *)
type pending = Forgotten | Kept of expected | Opened

let reads queue files rounds =
  let pending = Array.make (Queue.capacity queue) Forgotten in
  let push operation what =
    disturb ();
    let op = Queue.push queue operation in
    pending.(Queue.slot op) <- what
  in
  let some = Queue.Completions.create 3 in
  let reap min =
    disturb ();
    let count = Queue.reap queue some ~min ~timeout_ns:1_000_000_000 in
    for i = 0 to count - 1 do
      let slot = Queue.slot (Queue.Completions.op some i) in
      let result = Queue.Completions.result some i in
      (match pending.(slot) with
      | Kept expected -> check expected result
      | Opened when result >= 0 -> Unix.close (Operation.descriptor_of_result result)
      | Opened -> failwith (Printf.sprintf "open: %d" result)
      | Forgotten -> ());
      pending.(slot) <- Forgotten
    done
  in
  for _ = 1 to rounds do
    (* A signal may end a wait. *)
    while Queue.in_flight queue > Queue.capacity queue - 4 do reap 1 done;
    match draw 10 with
    | 0 ->
        (* A path that is garbage before the submission. *)
        let path = String.concat "/" [ ""; "dev"; "null" ] in
        push (Operation.openat path ~flags:0 ~perm:0) Opened
    | 1 ->
        let operation, expected = random_read files in
        let second, _ = random_read files in
        disturb ();
        let ops = Queue.push_chain queue [| operation; second; Operation.nop |] in
        pending.(Queue.slot ops.(0)) <- Kept expected;
        pending.(Queue.slot ops.(1)) <- Forgotten;
        pending.(Queue.slot ops.(2)) <- Forgotten
    | 2 | 3 ->
        let operation, _ = random_read files in
        push operation Forgotten;
        new_guard (1 + draw 20_000)
    | 4 ->
        let operation, _ = random_read files in
        let op = Queue.push queue operation in
        pending.(Queue.slot op) <- Forgotten;
        if draw 2 = 0 then Queue.submit queue;
        disturb ();
        ignore (Queue.cancel queue op)
    | 5 -> reap (draw 3)
    | 6 ->
        Queue.submit queue;
        disturb ()
    | _ ->
        let operation, expected = random_read files in
        push operation (Kept expected)
  done;
  while Queue.in_flight queue > 0 do reap 1 done

(* Reads in flight on a queue that is closed at once, or forgotten: direct ones where possible,
   since cached ones end at once, and short enough for malloc to use their memory again. *)
let long = 24 * 4096

let[@inline never] abandon backend files how =
  let queue = Queue.create ~backend ~capacity:32 ~close_wait_ms:0 () in
  let fd, aligned = files.(Array.length files - 1) in
  for i = 0 to 31 do
    let b = fresh ~aligned long in
    let pos = i * 4096 in
    ignore
      (Queue.push queue
         (if i land 1 = 0 then Operation.read fd b ~off:0 ~len:long ~pos
         else Operation.readv fd [| b |] ~pos))
  done;
  Queue.submit queue;
  match how with
  | `Close -> Queue.close queue
  | `Forget -> ()
  | `Finaliser -> Gc.finalise Queue.close queue

(* Stubs that allocate several values: a collection may come between any two. *)
let results queue fd =
  let buffer = Buffer.create Stat.buffer_size in
  let some = Queue.Completions.create 3 in
  ignore
    (Queue.push queue
       (Operation.statx ~dir:(Operation.directory fd) "" ~flags:Stat.empty_path ~mask:Stat.basic
          buffer));
  while Queue.reap queue some ~min:1 ~timeout_ns:(-1) = 0 do () done;
  if Queue.Completions.result some 0 <> 0 then failwith "statx";
  let stats = Unix.LargeFile.fstat fd and text = Queue.explain queue in
  (* They are checked when others have used the memory of values that were lost. *)
  let some_stats = Array.make 100 stats and texts = Array.make 100 text in
  for i = 0 to 4999 do
    if some_stats.(i mod 100) <> stats then failwith "Stat.large: wrong result";
    if texts.(i mod 100) <> text then failwith "Queue.explain: wrong result";
    ignore (Sys.opaque_identity (Bytes.create (i land 63)));
    some_stats.(i mod 100) <- Stat.large buffer;
    texts.(i mod 100) <- Queue.explain queue
  done

(* Runs [f] while another thread collects whenever this one has released the runtime lock. *)
let with_collecting_thread f =
  let over = Atomic.make false in
  let rec collect n =
    if not (Atomic.get over) then begin
      (* Values of the same size as those that moved take their old places. *)
      ignore (Sys.opaque_identity (List.init 400 (fun i -> (i, Bytes.make 24 '\xff'))));
      if n land 63 = 0 then Gc.compact () else Gc.minor ();
      Thread.delay 0.0001;
      collect (n + 1)
    end
  in
  let thread = Thread.create collect 1 in
  Fun.protect f ~finally:(fun () ->
      Atomic.set over true;
      Thread.join thread)

(* Waits that last, each on a new queue, whose values are young when the wait begins. *)
let long_waits backend rounds =
  let some = Queue.Completions.create 3 in
  for _ = 1 to rounds do
    let queue = Queue.create ~backend ~capacity:4 () in
    ignore (Queue.push queue (Operation.timeout 1_000_000));
    while Queue.reap queue some ~min:1 ~timeout_ns:(-1) = 0 do () done;
    Queue.close queue
  done

let run backend rounds =
  let name = Printf.sprintf "torture-%d" (Unix.getpid ()) in
  let fd = Unix.openfile name [ O_RDWR; O_CREAT; O_TRUNC; O_CLOEXEC ] 0o600 in
  ignore (Unix.write_substring fd (String.init size byte) 0 size);
  let direct = System.openfile name (System.constant "O_RDONLY" lor Operation.o_direct) 0 in
  Unix.unlink name;
  let files = [| (fd, false) |] in
  let files =
    if direct < 0 then files
    else Array.append files [| (Operation.descriptor_of_result direct, true) |]
  in
  let queue = Queue.create ~backend ~capacity:40 () in
  reads queue files rounds;
  results queue fd;
  with_collecting_thread (fun () ->
      long_waits backend 20;
      reads queue files (rounds / 10));
  for i = 1 to 1 + (rounds / 100) do
    let how = match i mod 3 with 0 -> `Close | 1 -> `Forget | _ -> `Finaliser in
    abandon backend files how;
    Gc.full_major ();
    for _ = 1 to 32 do new_guard (long + 4095) done;
    reads queue files 5
  done;
  Queue.close queue;
  (* What the kernel still writes, it writes now. *)
  for _ = 1 to 3 do
    Gc.full_major ();
    Unix.sleepf 0.002;
    Array.iteri (fun i _ -> check_guard i) guards
  done;
  Array.iter (fun (fd, _) -> Unix.close fd) files

let () =
  let rounds = if Array.length Sys.argv > 1 then int_of_string Sys.argv.(1) else 3000 in
  let compactions = ref 0 in
  (* A handler that compacts, whatever it interrupts. *)
  Sys.set_signal Sys.sigalrm
    (Signal_handle
       (fun _ ->
         incr compactions;
         if !compactions land 3 = 0 then Gc.compact () else Gc.minor ()));
  ignore (Unix.setitimer ITIMER_REAL { it_value = 0.002; it_interval = 0.002 });
  List.iter
    (fun backend ->
      run backend rounds;
      Printf.printf "%s: passed\n%!" (Queue.backend_name backend))
    (Lazy.force Backends.available);
  ignore (Unix.setitimer ITIMER_REAL { it_value = 0.; it_interval = 0. });
  Printf.printf "%d signals, %d compactions\n" !compactions (Gc.quick_stat ()).compactions
