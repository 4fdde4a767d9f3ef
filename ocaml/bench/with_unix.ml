(* The bytes and their sum. *)
let sum_all fd bytes =
  let rec loop count sum =
    match Unix.read fd bytes 0 Row.checksum_block with
    | 0 -> (count, sum)
    | n -> loop (count + n) (Job.sum sum bytes 0 n)
  in
  loop 0 0

let finish (job : Job.t) (bytes, sum) =
  Sample.Window.stop job.window ~ops:(bytes / Row.checksum_block) ~bytes ~check:sum

let checksum (job : Job.t) =
  let bytes = Bytes.create Row.checksum_block in
  Sample.Window.start job.window;
  let fd = Unix.openfile job.path [ O_RDONLY; O_CLOEXEC ] 0 in
  finish job (sum_all fd bytes)

let reads ~direct (job : Job.t) =
  let fd =
    if direct then Os.open_direct job.path else Unix.openfile job.path [ O_RDONLY; O_CLOEXEC ] 0
  in
  let buffer = Ringway.Buffer.create_aligned Row.read_block in
  let positions = Job.Positions.create job ~number:0 in
  let meter = Job.Meter.create job ~bytes_per_op:Row.read_block in
  let rec loop () =
    let pos = Job.Positions.next positions in
    if Os.pread fd buffer Row.read_block ~pos <> Row.read_block then failwith "short read";
    Row.Data.check buffer ~pos;
    if Job.Meter.tick meter then loop ()
  in
  loop ();
  Job.Meter.sample meter

let accept ~peer ~amount =
  let socket = Job.listen ~connections:1 in
  Job.start_peer socket peer amount;
  fst (Unix.accept ~cloexec:true socket)

let tcp ~mib (job : Job.t) =
  let fd = accept ~peer:"send" ~amount:(mib * 1024 * 1024) in
  let bytes = Bytes.create Row.checksum_block in
  Sample.Window.start job.window;
  finish job (sum_all fd bytes)

let echo (job : Job.t) =
  let fd = accept ~peer:"echo" ~amount:1 in
  let bytes = Bytes.create 4096 in
  let meter = Job.Meter.create job ~bytes_per_op:Row.message in
  let rec loop () =
    let n = Unix.read fd bytes 0 (Bytes.length bytes) in
    if Unix.write fd bytes 0 n <> n then failwith "short write";
    if Job.Meter.tick meter then loop ()
  in
  loop ();
  Job.end_peer ();
  Job.Meter.sample meter

let run = function
  | Row.Checksum _ -> Some checksum
  | Reads { direct; promises = 1 } -> Some (reads ~direct)
  | Tcp { mib } -> Some (tcp ~mib)
  | Echo { connections = 1 } -> Some echo
  | Reads _ | Echo _ -> None
