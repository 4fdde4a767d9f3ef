(* The benchmark: runs each contestant of each row in a process of its own, in turn, and prints
   records of the runs. What is measured is in Row, by whom in Contestant. *)

let usage =
  "Usage: bench.exe [OPTION]...\n\
   Compares file and socket I/O of OCaml programs: Unix, Lwt, ringway under Lwt, and Eio. Each\n\
   run is a process; the contestants of a row run in turn, every other round in reverse order.\n\
   It prints records in JSON; `make ocaml-bench` makes tables of them.\n"

let full = ref false
let only = ref []
let contestants = ref []
let rounds = ref 5
let seconds = ref 0.
let reads_mib = ref 0
let scratch = ref "."
let results = ref ""
let list = ref false
let check = ref false
let words text = List.filter (( <> ) "") (String.split_on_char ',' text)

let options =
  Arg.align
    [
      ("-full", Arg.Set full, " all sizes, 64 MiB to 2 GiB, and all numbers of connections");
      ( "-only",
        Arg.String (fun text -> only := !only @ words text),
        "ROW,... only these rows, such as direct/32; or all of a kind, such as echo" );
      ( "-contestants",
        Arg.String (fun text -> contestants := !contestants @ words text),
        "NAME,... only these contestants" );
      ("-rounds", Arg.Set_int rounds, "N runs of each contestant (5)");
      ( "-seconds",
        Arg.Set_float seconds,
        "S run time of rows without a fixed amount of data (0.3; -full: 2)" );
      ("-size", Arg.Set_int reads_mib, "MIB file size of random reads (256; -full: 1024)");
      ("-scratch", Arg.Set_string scratch, "DIR directory for files (.)");
      ( "-results",
        Arg.Set_string results,
        "FILE append each run to FILE, and skip those that it has" );
      ("-list", Arg.Set list, " list rows and contestants");
      ( "-check",
        Arg.Set check,
        " run everything very briefly and report only what fails: a test" );
    ]

(* ---- One run, in a process of its own -------------------------------------------------------- *)

(* Longer than any run takes: a run that hangs ends. *)
let time_limit = 600

(* What a run prints instead of its checksum and figures. *)
let unavailable = "unavailable: "

let child text name path blocks seconds =
  ignore (Unix.alarm time_limit);
  let row = Option.get (Row.of_string text) in
  let window = Sample.Window.create row in
  let contestant = Option.get (Contestant.find name) in
  (match contestant.prepare () with
  | () -> ()
  | exception Contestant.Unavailable reason ->
      print_endline (unavailable ^ String.concat " " (String.split_on_char '\n' reason));
      Unix._exit 0);
  let run = Option.get (contestant.run row) in
  let job =
    { Job.window; path; blocks = int_of_string blocks; seconds = float_of_string seconds }
  in
  let sample = run job in
  let figure (name, value) = Printf.sprintf "\"%s\": %.12g" name value in
  Printf.printf "%d {%s}\n%!" sample.check (String.concat ", " (List.map figure sample.figures));
  (* Connections that are open need no orderly end. *)
  Unix._exit 0

(* ---- All runs -------------------------------------------------------------------------------- *)

let status_text = function
  | Unix.WEXITED code -> Printf.sprintf "exit status %d" code
  | WSIGNALED signal | WSTOPPED signal -> Printf.sprintf "signal %d" signal

let run_child (contestant : Contestant.t) row ~path ~count =
  let set =
    contestant.environment @ if count then [ ("RINGWAY_BENCH_COUNT", "1") ] else []
  in
  let inherited =
    List.filter
      (fun variable -> not (String.length variable > 8 && String.sub variable 0 8 = "RINGWAY_"))
      (Array.to_list (Unix.environment ()))
  in
  let environment = List.map (fun (name, value) -> name ^ "=" ^ value) set @ inherited in
  let blocks = !reads_mib * 1024 * 1024 / Row.read_block in
  let arguments =
    [|
      Sys.executable_name;
      "-run";
      Row.to_string row;
      contestant.name;
      path;
      string_of_int blocks;
      string_of_float !seconds;
    |]
  in
  let output, its_output = Unix.pipe ~cloexec:true () in
  let pid =
    Unix.create_process_env Sys.executable_name arguments (Array.of_list environment) Unix.stdin
      its_output Unix.stderr
  in
  Unix.close its_output;
  let channel = Unix.in_channel_of_descr output in
  let line =
    match input_line channel with
    | line -> line
    | exception End_of_file -> ""
    | exception Sys.Break ->
        Unix.kill pid Sys.sigkill;
        raise Sys.Break
  in
  close_in channel;
  let status = snd (Unix.waitpid [] pid) in
  if String.starts_with ~prefix:unavailable line then
    let from = String.length unavailable in
    `Unavailable (String.sub line from (String.length line - from))
  else
    match (status, String.index_opt line ' ') with
    | WEXITED 0, Some space ->
        let figures = String.sub line (space + 1) (String.length line - space - 1) in
        `Ran (Ok (int_of_string (String.sub line 0 space), figures))
    | status, _ -> `Ran (Error (status_text status))

(* Files that were made, by size in MiB. *)
let files = Hashtbl.create 8

let file mib =
  match Hashtbl.find_opt files mib with
  | Some path -> path
  | None ->
      let path =
        Filename.concat !scratch (Printf.sprintf "ringway-bench-%d-%d" (Unix.getpid ()) mib)
      in
      Hashtbl.replace files mib path;
      Row.Data.create path ~mib;
      path

let remove_files () =
  Hashtbl.iter (fun _ path -> if Sys.file_exists path then Sys.remove path) files;
  Hashtbl.reset files

let read_whole path =
  let channel = open_in_bin path in
  let bytes = Bytes.create 65536 in
  while input channel bytes 0 65536 > 0 do
    ()
  done;
  close_in channel

let load_results path =
  if not (Sys.file_exists path) then []
  else begin
    let channel = open_in path in
    let rec load runs =
      match input_line channel with
      | exception End_of_file -> List.rev runs
      | line -> load (Option.fold ~none:runs ~some:(fun run -> run :: runs) (Records.of_line line))
    in
    Fun.protect (fun () -> load []) ~finally:(fun () -> close_in channel)
  end

(* Runs that fail are made again the next time. *)
let save (run : Records.run) =
  if Result.is_ok run.outcome && !results <> "" then begin
    let channel = open_out_gen [ Open_append; Open_creat; Open_wronly ] 0o644 !results in
    output_string channel (Records.line run ^ "\n");
    close_out channel
  end

(* Names of contestants that cannot run here. *)
let skipped = Hashtbl.create 8

let skip name reason =
  if not (Hashtbl.mem skipped name) then begin
    Hashtbl.replace skipped name ();
    Printf.printf "skipped: %s: %s\n%!" name reason
  end

let taking_part row =
  List.filter
    (fun (c : Contestant.t) ->
      (!contestants = [] || List.mem c.name !contestants) && c.run row <> None)
    Contestant.all

(* Contestants that read the same bytes must find the same sum. *)
let checked runs (run : Records.run) =
  let check_of (run : Records.run) = Option.map fst (Result.to_option run.outcome) in
  let other =
    List.find_map
      (fun (other : Records.run) -> if other.row = run.row then check_of other else None)
      runs
  in
  match (check_of run, other) with
  | Some check, Some first when check <> first ->
      { run with outcome = Error (Printf.sprintf "checksum %d, not %d" check first) }
  | _ -> run

let prepare_cache row path =
  match row with
  | Row.Checksum { cold = true; _ } | Reads { direct = true; _ } -> Os.drop_cache path
  | Checksum _ | Reads _ -> read_whole path
  | Tcp _ | Echo _ -> ()

(* Some file systems have no direct I/O. *)
let direct_is_refused path =
  match Os.open_direct path with
  | fd ->
      Unix.close fd;
      false
  | exception Unix.Unix_error (error, _, _) ->
      skip "direct reads" (Unix.error_message error);
      true

(* Round 0 counts system calls. It is the last. *)
let run_row runs row =
  let missing round (c : Contestant.t) =
    not
      (List.exists
         (fun (run : Records.run) ->
           run.row = row && run.contestant = c.name && run.round = round)
         runs)
  in
  let plan =
    List.concat_map
      (fun round ->
        let order = taking_part row in
        let order = if round mod 2 = 0 then List.rev order else order in
        List.map (fun c -> (round, c)) (List.filter (missing round) order))
      (List.init !rounds (fun i -> i + 1) @ [ 0 ])
  in
  let path =
    match Row.Data.mib row ~reads_mib:!reads_mib with
    | Some mib when plan <> [] -> file mib
    | _ -> ""
  in
  let refused =
    match row with
    | Row.Reads { direct = true; _ } -> plan <> [] && direct_is_refused path
    | _ -> false
  in
  let add runs (round, (c : Contestant.t)) =
    if Unix.isatty Unix.stderr then
      Printf.eprintf "%-14s %-18s %s\027[K\r%!" (Row.to_string row) c.name
        (if round = 0 then "system calls" else Printf.sprintf "round %d" round);
    prepare_cache row path;
    match run_child c row ~path ~count:(round = 0) with
    | `Unavailable reason ->
        skip c.name reason;
        runs
    | `Ran outcome ->
        let run = checked runs { Records.row; contestant = c.name; round; outcome } in
        save run;
        runs @ [ run ]
  in
  List.fold_left
    (fun runs (round, (c : Contestant.t)) ->
      if refused || Hashtbl.mem skipped c.name then runs else add runs (round, c))
    runs plan

let selected_rows () =
  let all = if !check then Row.check else if !full then Row.full else Row.standard in
  let expand text =
    match Row.of_string text with
    | Some row -> [ row ]
    | None -> (
        let is_kind row = List.hd (String.split_on_char '/' (Row.to_string row)) = text in
        match List.filter is_kind all with
        | [] -> raise (Arg.Bad ("no such row: " ^ text))
        | rows -> rows)
  in
  if !only = [] then all else List.concat_map expand !only

let print_list () =
  List.iter
    (fun row -> Printf.printf "%-16s %s\n" (Row.to_string row) (Row.title row))
    (selected_rows ());
  print_newline ();
  List.iter (fun (c : Contestant.t) -> Printf.printf "%-18s %s\n" c.name c.about) Contestant.all

let parse () =
  Arg.parse options (fun text -> raise (Arg.Bad ("unexpected: " ^ text))) usage;
  if !check then begin
    rounds := 1;
    seconds := 0.02;
    reads_mib := 8
  end;
  if !seconds <= 0. then seconds := if !full then 2. else 0.3;
  if !reads_mib <= 0 then reads_mib := if !full then 1024 else 256;
  List.iter
    (fun name ->
      if Contestant.find name = None then begin
        Printf.eprintf "no such contestant: %s (-list lists them)\n" name;
        exit 2
      end)
    !contestants

let main () =
  parse ();
  match selected_rows () with
  | exception Arg.Bad text ->
      prerr_endline text;
      exit 2
  | _ when !list -> print_list ()
  | rows ->
      (* Ctrl-C and kill(1) remove the files, too. *)
      Sys.catch_break true;
      Sys.set_signal Sys.sigterm (Signal_handle (fun _ -> raise Sys.Break));
      let runs =
        Fun.protect ~finally:remove_files (fun () ->
            List.fold_left run_row (if !results = "" then [] else load_results !results) rows)
      in
      if Unix.isatty Unix.stderr then prerr_string "\027[K";
      let print_failure (run : Records.run) =
        Result.iter_error
          (Printf.printf "%s, %s failed: %s\n" (Row.to_string run.row) run.contestant)
          run.outcome
      in
      if !check then List.iter print_failure runs else Records.print runs;
      (* As for every test, a skip is a failure where CI is set. *)
      let incomplete = !check && Hashtbl.length skipped > 0 && Sys.getenv_opt "CI" <> None in
      let failed (run : Records.run) = Result.is_error run.outcome in
      if incomplete || List.exists failed runs then exit 1

let () =
  match Sys.argv with
  | [| _; "-run"; row; name; path; blocks; seconds |] -> child row name path blocks seconds
  | _ -> ( try main () with Sys.Break -> exit 130)
