open Lwt.Infix

module type LWT_UNIX = sig
  val openfile : string -> Unix.open_flag list -> Unix.file_perm -> Lwt_unix.file_descr Lwt.t
  val read : Lwt_unix.file_descr -> Bytes.t -> int -> int -> int Lwt.t
  val pread : Lwt_unix.file_descr -> Bytes.t -> file_offset:int -> int -> int -> int Lwt.t
end

let measure (job : Job.t) read_all =
  let block = Bytes.create Row.checksum_block in
  let run () =
    Sample.Window.start job.window;
    read_all block >|= fun (bytes, sum) ->
    Sample.Window.stop job.window ~ops:(bytes / Row.checksum_block) ~bytes ~check:sum
  in
  Lwt_main.run (run ())

let sum_all bytes read =
  let rec loop count sum =
    read bytes 0 Row.checksum_block >>= function
    | 0 -> Lwt.return (count, sum)
    | n -> loop (count + n) (Job.sum sum bytes 0 n)
  in
  loop 0 0

let expect len n = if n <> len then failwith "short transfer"

let random_reads job ~promises reader =
  let meter = Job.Meter.create job ~bytes_per_op:Row.read_block in
  let rec loop positions read () =
    read (Job.Positions.next positions) >>= fun () ->
    if Job.Meter.tick meter then loop positions read () else Lwt.return_unit
  in
  let run number = reader number >>= fun read -> loop (Job.Positions.create job ~number) read () in
  Lwt_main.run (Lwt.join (List.init promises run));
  Job.Meter.sample meter

let accept_all socket serve =
  let socket = Lwt_unix.of_unix_file_descr ~blocking:false ~set_flags:true socket in
  let rec loop () =
    Lwt_unix.accept socket >>= fun (fd, _) ->
    Lwt.async (fun () -> serve fd);
    loop ()
  in
  Lwt.async loop

let echo job ~connections serve =
  let socket = Job.listen ~connections in
  Job.start_peer socket "echo" connections;
  let meter = Job.Meter.create job ~bytes_per_op:Row.message in
  let over, resolver = Lwt.wait () in
  let tick () =
    let go_on = Job.Meter.tick meter in
    if (not go_on) && Lwt.is_sleeping over then Lwt.wakeup_later resolver ();
    go_on
  in
  serve tick socket;
  Lwt_main.run over;
  Job.end_peer ();
  Job.Meter.sample meter

let like_lwt_unix (module U : LWT_UNIX) row =
  let openfile (job : Job.t) = U.openfile job.path [ O_RDONLY; O_CLOEXEC ] 0 in
  match row with
  | Row.Checksum _ ->
      Some (fun job -> measure job (fun block ->
            openfile job >>= fun fd -> sum_all block (U.read fd)))
  | Reads { direct = false; promises } ->
      Some
        (fun job ->
          random_reads job ~promises (fun _ ->
              openfile job >|= fun fd ->
              let bytes = Bytes.create Row.read_block in
              fun pos ->
                U.pread fd bytes ~file_offset:pos 0 Row.read_block >|= fun n ->
                expect Row.read_block n;
                Row.Data.check_bytes bytes ~pos))
  | Reads { direct = true; _ } | Tcp _ | Echo _ -> None

(* pread of Lwt reads into memory from malloc, which O_DIRECT refuses; so each promise has a
   descriptor, and reads into an aligned Bigarray. *)
let lwt_unix_direct ~promises job =
  random_reads job ~promises (fun _ ->
      let fd = Os.open_direct job.path in
      let lwt_fd = Lwt_unix.of_unix_file_descr ~blocking:true ~set_flags:false fd in
      let buffer = Ringway.Buffer.create_aligned Row.read_block in
      Lwt.return (fun pos ->
          ignore (Unix.lseek fd pos SEEK_SET);
          Lwt_bytes.read lwt_fd buffer 0 Row.read_block >|= fun n ->
          expect Row.read_block n;
          Row.Data.check buffer ~pos))

(* One connection. *)
let tcp ~mib job read_all =
  let socket = Job.listen ~connections:1 in
  Job.start_peer socket "send" (mib * 1024 * 1024);
  let socket = Lwt_unix.of_unix_file_descr ~blocking:false ~set_flags:true socket in
  let fd = Lwt_main.run (Lwt_unix.accept socket >|= fst) in
  measure job (read_all fd)

let lwt_unix = function
  | Row.Reads { direct = true; promises } -> Some (lwt_unix_direct ~promises)
  | Tcp { mib } -> Some (fun job -> tcp ~mib job (fun fd block -> sum_all block (Lwt_unix.read fd)))
  | Echo { connections } ->
      let serve tick fd =
        let bytes = Bytes.create 4096 in
        let rec loop () =
          Lwt_unix.read fd bytes 0 (Bytes.length bytes) >>= fun n ->
          if n = 0 then Lwt_unix.close fd
          else
            Lwt_unix.write fd bytes 0 n >>= fun written ->
            expect n written;
            if tick () then loop () else Lwt.return_unit
        in
        loop ()
      in
      Some
        (fun job ->
          echo job ~connections (fun tick socket -> accept_all socket (serve tick)))
  | (Checksum _ | Reads _) as row ->
      like_lwt_unix
        (module struct
          let openfile = Lwt_unix.openfile
          let read = Lwt_unix.read
          let pread = Lwt_unix.pread
        end)
        row

let channel_buffer () = Lwt_bytes.create Row.checksum_block

let channels with_file = function
  | Row.Checksum _ ->
      Some
        (fun (job : Job.t) ->
          let buffer = channel_buffer () in
          measure job (fun block ->
              let result = ref (0, 0) in
              with_file job.path ~buffer (fun channel ->
                  sum_all block (Lwt_io.read_into channel) >|= fun sum -> result := sum)
              >|= fun () -> !result))
  | Reads _ | Tcp _ | Echo _ -> None

let lwt_io = function
  | Row.Tcp { mib } ->
      Some
        (fun job ->
          tcp ~mib job (fun fd ->
              let channel = Lwt_io.of_fd ~buffer:(channel_buffer ()) ~mode:Input fd in
              fun block -> sum_all block (Lwt_io.read_into channel)))
  | Echo { connections } ->
      let serve tick fd =
        let input = Lwt_io.of_fd ~mode:Input fd and output = Lwt_io.of_fd ~mode:Output fd in
        let bytes = Bytes.create Row.message in
        let rec loop () =
          Lwt_io.read_into_exactly input bytes 0 Row.message >>= fun () ->
          Lwt_io.write_from_exactly output bytes 0 Row.message >>= fun () ->
          Lwt_io.flush output >>= fun () -> if tick () then loop () else Lwt.return_unit
        in
        loop ()
      in
      Some
        (fun job ->
          echo job ~connections (fun tick socket -> accept_all socket (serve tick)))
  | (Checksum _ | Reads _) as row ->
      channels (fun path ~buffer f -> Lwt_io.with_file ~buffer ~mode:Input path f) row
