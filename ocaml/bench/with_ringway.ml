open Lwt.Infix
open Ringway_lwt

let open_file ?direct path = File.openfile ?direct path [ O_RDONLY ] 0

let reads ~direct ~promises reader (job : Job.t) =
  let file = Lwt_main.run (open_file ~direct job.path) in
  With_lwt.random_reads job ~promises (fun _ -> Lwt.return (reader file))

let full n = if n <> Row.read_block then failwith "short read"

let file = function
  | Row.Checksum _ ->
      Some
        (fun (job : Job.t) ->
          let buffer = Ringway.Buffer.create Row.checksum_block in
          With_lwt.measure job (fun _ ->
              open_file job.path >>= fun file ->
              let rec loop count sum =
                File.pread file buffer ~pos:count 0 Row.checksum_block >>= function
                | 0 -> Lwt.return (count, sum)
                | n -> loop (count + n) (Job.sum_buffer sum buffer 0 n)
              in
              loop 0 0))
  | Reads { direct; promises } ->
      Some
        (reads ~direct ~promises (fun file ->
             let buffer = Ringway.Buffer.create_aligned Row.read_block in
             fun pos ->
               File.pread file buffer ~pos 0 Row.read_block >|= fun n ->
               full n;
               Row.Data.check buffer ~pos))
  | Tcp _ | Echo _ -> None

let bytes = function
  | Row.Checksum _ ->
      Some
        (fun (job : Job.t) ->
          With_lwt.measure job (fun block ->
              open_file job.path >>= fun file ->
              With_lwt.sum_all block (File.read_bytes file)))
  | Reads { direct; promises } ->
      Some
        (reads ~direct ~promises (fun file ->
             let bytes = Bytes.create Row.read_block in
             fun pos ->
               File.pread_bytes file bytes ~pos 0 Row.read_block >|= fun n ->
               full n;
               Row.Data.check_bytes bytes ~pos))
  | Tcp _ | Echo _ -> None

let sum_reader reader block =
  let rec loop count sum =
    Reader.read reader block >>= function
    | `Eof -> Lwt.return (count, sum)
    | `Ok n -> loop (count + n) (Job.sum sum block 0 n)
  in
  loop 0 0

let reader = function
  | Row.Checksum _ ->
      Some
        (fun (job : Job.t) ->
          With_lwt.measure job (fun block ->
              Reader.with_file job.path (fun reader -> sum_reader reader block)))
  | Tcp { mib } ->
      Some (fun job -> With_lwt.tcp ~mib job (fun fd -> sum_reader (fst (Tcp.of_socket fd))))
  | Echo { connections } ->
      let serve tick fd =
        let reader, writer = Tcp.of_socket ~buffer_size:4096 fd in
        let bytes = Bytes.create 4096 in
        let rec loop () =
          Reader.read reader bytes >>= function
          | `Eof -> Writer.close writer
          | `Ok len ->
              Writer.write_bytes writer ~len bytes >>= fun () ->
              Writer.flush writer >>= fun () -> if tick () then loop () else Lwt.return_unit
        in
        loop ()
      in
      Some
        (fun job ->
          With_lwt.echo job ~connections (fun tick socket ->
              With_lwt.accept_all socket (serve tick)))
  | Reads _ -> None

let io = With_lwt.channels (fun path ~buffer f -> Io.with_file ~buffer ~mode:Io.Input path f)
