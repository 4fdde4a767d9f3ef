(* Searches files for a string, many of them at the same time. The output is that of
   grep -F, in no particular order of files; binary files are skipped, as with grep -I. It knows no
   regular expressions.

     grep [-r] [-n] [-i] [-l] [-j FILES] STRING PATH... *)

open Lwt.Infix
module Reader = Ringway_lwt.Reader

let recursive = ref false
let line_numbers = ref false
let ignore_case = ref false
let names_only = ref false
let files_at_once = ref 32

(* As grep: 0 a line was found, 1 none, 2 an error. *)
let found = ref false
let failed = ref false

let report path exn =
  failed := true;
  let reason =
    match exn with
    | Unix.Unix_error (code, _, _) -> Unix.error_message code
    | exn -> Printexc.to_string exn
  in
  Printf.eprintf "grep: %s: %s\n%!" path reason

exception Binary

(* The output for one file. *)
let search_file expression ~with_name path reader =
  let output = Buffer.create 256 in
  let matches line =
    match Str.search_forward expression line 0 with
    | (_ : int) -> true
    | exception Not_found -> false
  in
  let add number line =
    if with_name then Buffer.add_string output (path ^ ":");
    if !line_numbers then Buffer.add_string output (string_of_int number ^ ":");
    Buffer.add_string output line;
    Buffer.add_char output '\n'
  in
  let rec loop number =
    Reader.read_until reader '\n' >>= function
    | `Eof -> Lwt.return_unit
    | `Ok (line, _) ->
        if String.contains line '\000' then Lwt.fail Binary
        else if matches line then
          if !names_only then begin
            Buffer.add_string output (path ^ "\n");
            Lwt.return_unit
          end
          else begin
            add number line;
            loop (number + 1)
          end
        else loop (number + 1)
  in
  loop 1 >|= fun () -> Buffer.contents output

let search expression ~with_name path =
  Lwt.catch
    (fun () ->
      Reader.with_file ~flags:[ O_RDONLY; O_NONBLOCK ] path
        (search_file expression ~with_name path)
      >|= fun output ->
      if output <> "" then begin
        found := true;
        print_string output
      end)
    (fun exn ->
      if exn <> Binary then report path exn;
      Lwt.return_unit)

(* What can be listed of a directory. *)
let names path =
  let names = Lwt_unix.files_of_directory path in
  Lwt_stream.from (fun () ->
      Lwt.catch
        (fun () -> Lwt_stream.get names)
        (fun exn ->
          report path exn;
          Lwt.return_none))

(* The files below a path. Symbolic links in directories are not followed. *)
let rec files path kind =
  match kind with
  | Unix.S_DIR when !recursive ->
      names path
      |> Lwt_stream.filter (fun name ->
             name <> Filename.current_dir_name && name <> Filename.parent_dir_name)
      |> Lwt_stream.map (fun name ->
             let path = Filename.concat path name in
             match (Unix.LargeFile.lstat path).st_kind with
             | S_LNK | S_FIFO | S_SOCK | S_CHR | S_BLK -> Lwt_stream.of_list []
             | kind -> files path kind
             | exception exn ->
                 report path exn;
                 Lwt_stream.of_list [])
      |> Lwt_stream.concat
  | _ -> Lwt_stream.of_list [ path ]

let main pattern paths =
  let expression =
    if !ignore_case then Str.regexp_string_case_fold pattern else Str.regexp_string pattern
  in
  let with_name = !recursive || List.length paths > 1 in
  let start path =
    match (Unix.LargeFile.stat path).st_kind with
    | kind -> files path kind
    | exception exn ->
        report path exn;
        Lwt_stream.of_list []
  in
  Lwt_stream.concat (Lwt_stream.map start (Lwt_stream.of_list paths))
  |> Lwt_stream.iter_n ~max_concurrency:!files_at_once (search expression ~with_name)

let () =
  let arguments = ref [] in
  let usage = "grep [-r] [-n] [-i] [-l] [-j FILES] STRING PATH..." in
  Arg.parse
    [
      ("-r", Arg.Set recursive, " search directories");
      ("-n", Arg.Set line_numbers, " print line numbers");
      ("-i", Arg.Set ignore_case, " ignore case");
      ("-l", Arg.Set names_only, " print the names of files only");
      ("-j", Arg.Set_int files_at_once, "FILES files at the same time (default 32)");
    ]
    (fun argument -> arguments := argument :: !arguments)
    usage;
  match List.rev !arguments with
  | pattern :: (_ :: _ as paths) when !files_at_once > 0 ->
      (* Without io_uring the files are read over Lwt's own engine. *)
      ignore (Ringway_lwt.Engine.install () : (unit, string) result);
      Lwt_main.run (main pattern paths);
      exit (if !failed then 2 else if !found then 0 else 1)
  | _ ->
      prerr_endline usage;
      exit 2
