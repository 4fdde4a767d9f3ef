open Ringway

let way = Option.value (Sys.getenv_opt "RINGWAY_TEST_WAY") ~default:"uring"
let is other = way = other
let skip reason = Printf.printf "skipped: %s\n%!" reason

let backends () =
  match way with
  | "engine" | "uring" -> [ Queue.Uring ]
  | "kaio" -> [ Queue.Kaio ]
  | "threads" -> [ Queue.Threads ]
  | _ -> failwith ("RINGWAY_TEST_WAY: " ^ way)

let directory =
  let rec create n =
    let name =
      Filename.concat (Filename.get_temp_dir_name ())
        (Printf.sprintf "ringway-lwt-%d-%d" (Unix.getpid ()) n)
    in
    match Unix.mkdir name 0o755 with
    | () -> name
    | exception Unix.Unix_error (EEXIST, _, _) -> create (n + 1)
  in
  create 0

let rec remove path =
  match (Unix.lstat path).st_kind with
  | S_DIR ->
      Array.iter (fun name -> remove (Filename.concat path name)) (Sys.readdir path);
      Unix.rmdir path
  | _ -> Unix.unlink path

let () =
  let parent = Unix.getpid () in
  at_exit (fun () -> if Unix.getpid () = parent && Sys.file_exists directory then remove directory)

let lwt f () = Lwt_main.run (f ())

let limited limit f () =
  ignore (Unix.alarm limit);
  f ();
  ignore (Unix.alarm 0)

let set_up () =
  if is "engine" then Ringway_lwt.Engine.install ()
  else begin
    Unix.putenv "RINGWAY_BACKEND" way;
    match Queue.create () with
    | queue ->
        Queue.close queue;
        Ok ()
    | exception Queue.Error { message; _ } -> Error message
  end

let run ?(limit = 180) name cases =
  match set_up () with
  | Ok () ->
      Alcotest.run ~and_exit:false (name ^ ", " ^ way)
        [
          ( name,
            List.map (fun (title, f) -> Alcotest.test_case title `Quick (limited limit f)) cases );
        ]
  | Error reason ->
      skip (way ^ ": " ^ reason);
      if Sys.getenv_opt "CI" <> None then exit 1

let read_file path =
  let fd = Unix.openfile path [ O_RDONLY ] 0 in
  let buffer = Bytes.create 4096 and text = Stdlib.Buffer.create 4096 in
  let rec go () =
    match Unix.read fd buffer 0 4096 with
    | 0 -> ()
    | n ->
        Stdlib.Buffer.add_subbytes text buffer 0 n;
        go ()
  in
  go ();
  Unix.close fd;
  Stdlib.Buffer.contents text

external number : Unix.file_descr -> int = "%identity"
