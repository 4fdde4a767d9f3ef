(* The functions that Eio's users call, except that random reads go to Low_level, since Eio opens no
   file with O_DIRECT; Eio.File.pread is that call. *)

open Eio.Std
module Low_level = Eio_linux.Low_level

(* The default queue has 64 entries, fewer than some rows have promises. *)
let run_loop f =
  Eio_linux.run ~queue_depth:256 ~fallback:(fun (`Msg reason) -> failwith reason) f

let sum_all flow buffer =
  let rec loop count sum =
    match Eio.Flow.single_read flow buffer with
    | n -> loop (count + n) (Job.sum_buffer sum buffer.Cstruct.buffer 0 n)
    | exception End_of_file -> (count, sum)
  in
  loop 0 0

let finish (job : Job.t) (bytes, sum) =
  Sample.Window.stop job.window ~ops:(bytes / Row.checksum_block) ~bytes ~check:sum

let checksum (job : Job.t) =
  let buffer = Cstruct.create Row.checksum_block in
  run_loop (fun env ->
      Sample.Window.start job.window;
      let path = Eio.Path.( / ) (Eio.Stdenv.fs env) job.path in
      finish job (Eio.Path.with_open_in path (fun file -> sum_all file buffer)))

let reads ~direct ~promises (job : Job.t) =
  let meter = Job.Meter.create job ~bytes_per_op:Row.read_block in
  let read_all sw number =
    let fd =
      if direct then Os.open_direct job.path
      else Unix.openfile job.path [ O_RDONLY; O_CLOEXEC ] 0
    in
    let fd = Eio_unix.Fd.of_unix ~sw ~blocking:true ~seekable:true ~close_unix:true fd in
    let buffer = Ringway.Buffer.create_aligned Row.read_block in
    let buffers = [ Cstruct.of_bigarray buffer ] in
    let positions = Job.Positions.create job ~number in
    let rec loop () =
      let pos = Job.Positions.next positions in
      let n = Low_level.readv ~file_offset:(Optint.Int63.of_int pos) fd buffers in
      if n <> Row.read_block then failwith "short read";
      Row.Data.check buffer ~pos;
      if Job.Meter.tick meter then loop ()
    in
    loop ()
  in
  run_loop (fun _ ->
      Switch.run (fun sw ->
          Fiber.all (List.init promises (fun number () -> read_all sw number))));
  Job.Meter.sample meter

let listening ~sw ~connections peer amount =
  let socket = Job.listen ~connections in
  Job.start_peer socket peer amount;
  Eio_unix.Net.import_socket_listening ~sw ~close_unix:true socket

let tcp ~mib (job : Job.t) =
  let buffer = Cstruct.create Row.checksum_block in
  run_loop (fun _ ->
      Switch.run (fun sw ->
          let socket = listening ~sw ~connections:1 "send" (mib * 1024 * 1024) in
          let flow, _ = Eio.Net.accept ~sw socket in
          Sample.Window.start job.window;
          finish job (sum_all flow buffer)))

let echo ~connections (job : Job.t) =
  let meter = Job.Meter.create job ~bytes_per_op:Row.message in
  let over, resolver = Promise.create () in
  let serve flow =
    let buffer = Cstruct.create 4096 in
    let rec loop () =
      let n = Eio.Flow.single_read flow buffer in
      Eio.Flow.write flow [ Cstruct.sub buffer 0 n ];
      if Job.Meter.tick meter then loop () else ignore (Promise.try_resolve resolver ())
    in
    loop ()
  in
  let accept_all () =
    Switch.run (fun sw ->
        let socket = listening ~sw ~connections "echo" connections in
        let rec loop () =
          let flow, _ = Eio.Net.accept ~sw socket in
          Fiber.fork ~sw (fun () -> serve flow);
          loop ()
        in
        loop ())
  in
  run_loop (fun _ -> Fiber.first accept_all (fun () -> Promise.await over));
  Job.end_peer ();
  Job.Meter.sample meter

let run = function
  | Row.Checksum _ -> Some checksum
  | Reads { direct; promises } -> Some (reads ~direct ~promises)
  | Tcp { mib } -> Some (tcp ~mib)
  | Echo { connections } -> Some (echo ~connections)
