let counter = ref 0

let start program =
  incr counter;
  let name kind = Filename.concat Way.directory (Printf.sprintf "%s %d" kind !counter) in
  let backing = name "backing" and mount = name "mount" in
  Unix.mkdir backing 0o755;
  Unix.mkdir mount 0o755;
  let its_input, input = Unix.pipe ~cloexec:true () in
  let output, its_output = Unix.pipe ~cloexec:true () in
  let pid =
    Unix.create_process program [| program; backing; mount |] its_input its_output Unix.stderr
  in
  Unix.close its_input;
  Unix.close its_output;
  (pid, input, output, mount)

let with_mount f =
  match Sys.getenv_opt "RINGWAY_HOSTILE_FS" with
  | None | Some "" -> Way.skip "RINGWAY_HOSTILE_FS does not name the program hostile-fs"
  | Some program ->
      let pid, input, output, mount = start program in
      Fun.protect
        ~finally:(fun () ->
          (* It unmounts at the end of its input. *)
          Unix.close input;
          Unix.close output;
          ignore (Unix.waitpid [] pid))
        (fun () ->
          if Unix.read output (Bytes.create 100) 0 100 > 0 then f mount
          else Way.skip "no FUSE file system can be mounted here")

let control mount = Filename.concat mount ".hostile"

let set mount rule =
  let fd = Unix.openfile (control mount) [ O_WRONLY; O_CLOEXEC ] 0 in
  let line = rule ^ "\n" in
  Fun.protect
    ~finally:(fun () -> Unix.close fd)
    (fun () -> assert (Unix.write_substring fd line 0 (String.length line) = String.length line))

let requests mount operation =
  String.split_on_char '\n' (Way.read_file (control mount))
  |> List.filter_map (fun line ->
         match String.split_on_char ' ' line with
         | name :: count :: _ when name = operation -> int_of_string_opt count
         | _ -> None)
  |> List.fold_left ( + ) 0
