type t = { window : Sample.Window.t; path : string; blocks : int; seconds : float }

let rec sum so_far bytes index len =
  if index = len then so_far
  else sum (so_far + Char.code (Bytes.unsafe_get bytes index)) bytes (index + 1) len

let rec sum_buffer so_far (buffer : Ringway.Buffer.t) index len =
  if index = len then so_far
  else
    sum_buffer (so_far + Char.code (Bigarray.Array1.unsafe_get buffer index)) buffer (index + 1) len

module Meter = struct
  type job = t

  type t = {
    job : job;
    bytes_per_op : int;
    mutable ops : int;
    mutable start : float;
    mutable finish : float;
    mutable result : Sample.t option;
  }

  let create job ~bytes_per_op =
    { job; bytes_per_op; ops = 0; start = 0.; finish = infinity; result = None }

  let look t =
    let now = Unix.gettimeofday () in
    if t.start = 0. then t.start <- now +. (t.job.seconds /. 5.)
    else if t.finish = infinity then begin
      if now >= t.start then begin
        Sample.Window.start t.job.window;
        t.ops <- 0;
        t.finish <- Unix.gettimeofday () +. t.job.seconds
      end
    end
    else if now >= t.finish && t.result = None then
      let bytes = t.ops * t.bytes_per_op in
      t.result <- Some (Sample.Window.stop t.job.window ~ops:t.ops ~bytes ~check:0)

  (* The clock is read for one of 16 operations. *)
  let tick t =
    t.ops <- t.ops + 1;
    if t.ops land 15 = 1 then look t;
    t.result = None

  let sample t = Option.get t.result
end

module Positions = struct
  type job = t
  type t = { mutable state : int; blocks : int }

  let create (job : job) ~number = { state = (number * 7919) + 12345; blocks = job.blocks }

  (* A linear congruential generator, of which the high bits are used. *)
  let next t =
    t.state <- (t.state * 2862933555777941757) + 3037000493;
    (t.state lsr 24) mod t.blocks * Row.read_block
end

let listen ~connections =
  let socket = Unix.socket ~cloexec:true PF_INET SOCK_STREAM 0 in
  Unix.setsockopt socket SO_REUSEADDR true;
  Unix.bind socket (ADDR_INET (Unix.inet_addr_loopback, 0));
  Unix.listen socket (max 128 connections);
  socket

let peer = ref None

let start_peer socket what amount =
  let port =
    match Unix.getsockname socket with ADDR_INET (_, port) -> port | ADDR_UNIX _ -> assert false
  in
  let program = Filename.concat (Filename.dirname Sys.executable_name) "peer.exe" in
  let arguments = [| program; what; string_of_int port; string_of_int amount |] in
  peer := Some (Unix.create_process program arguments Unix.stdin Unix.stdout Unix.stderr);
  Os.use_first_processor ()

let end_peer () =
  Option.iter
    (fun pid ->
      Unix.kill pid Sys.sigkill;
      ignore (Unix.waitpid [] pid))
    !peer
