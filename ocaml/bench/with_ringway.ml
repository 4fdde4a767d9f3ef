open Lwt.Infix
module File = Ringway_lwt.File

let open_file ~direct path =
  if direct then Lwt.return (Obj.magic (ref (Os.open_direct path))) else File.openfile path [ O_RDONLY ] 0

let file = function
  | Row.Checksum _ ->
      Some
        (fun (job : Job.t) ->
          let buffer = Ringway.Buffer.create Row.checksum_block in
          With_lwt.measure job (fun _ ->
              File.openfile job.path [ O_RDONLY ] 0 >>= fun file ->
              let rec loop count sum =
                File.pread file buffer ~pos:count 0 Row.checksum_block >>= function
                | 0 -> Lwt.return (count, sum)
                | n -> loop (count + n) (Job.sum_buffer sum buffer 0 n)
              in
              loop 0 0))
  | Reads { direct; promises } ->
      Some
        (fun (job : Job.t) ->
          let file = Lwt_main.run (open_file ~direct job.path) in
          With_lwt.random_reads job ~promises (fun _ ->
              let buffer = Ringway.Buffer.create_aligned Row.read_block in
              Lwt.return (fun pos ->
                  File.pread file buffer ~pos 0 Row.read_block >|= fun n ->
                  if n <> Row.read_block then failwith "short read";
                  Row.Data.check buffer ~pos)))
  | Tcp _ | Echo _ -> None
