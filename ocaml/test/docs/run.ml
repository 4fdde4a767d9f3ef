let make_directory line =
  let name = Printf.sprintf "docs-%d-%d" (Unix.getpid ()) line in
  Unix.mkdir name 0o700;
  let data = open_out_bin (Filename.concat name "data") in
  output_string data (String.init (1024 * 1024) (fun i -> Char.chr (i land 255)));
  close_out data;
  name

let remove_directory name =
  Array.iter (fun file -> Sys.remove (Filename.concat name file)) (Sys.readdir name);
  Unix.rmdir name

(* No block waits for anything that does not come. *)
let time_limit = 60

let run_block blocks line =
  ignore (Unix.alarm time_limit);
  (List.assoc line blocks) ()

let succeeds line =
  let directory = make_directory line in
  let program =
    if Filename.is_relative Sys.executable_name then
      Filename.concat (Sys.getcwd ()) Sys.executable_name
    else Sys.executable_name
  in
  let home = Sys.getcwd () in
  Sys.chdir directory;
  let pid =
    Unix.create_process program
      [| program; string_of_int line |]
      Unix.stdin Unix.stdout Unix.stderr
  in
  Sys.chdir home;
  let _, status = Unix.waitpid [] pid in
  remove_directory directory;
  Printf.printf "docs/ocaml.md, line %d: %s\n%!" line
    (if status = WEXITED 0 then "ok" else "failed");
  status = WEXITED 0

let blocks blocks =
  match Sys.argv with
  | [| _; line |] -> run_block blocks (int_of_string line)
  | _ ->
      let results = List.map (fun (line, _) -> succeeds line) blocks in
      if results = [] || List.mem false results then exit 1
