(* Records as lines of JSON, written and read back; and the columns, targets and charts. *)

type run = {
  row : Row.t;
  contestant : string;
  round : int;
  outcome : (int * string, string) result;
}

let quoted text = "\"" ^ String.concat "'" (String.split_on_char '"' text) ^ "\""

let line run =
  match run.outcome with
  | Ok (check, figures) ->
      Printf.sprintf
        "{\"turn\": {\"row\": %S, \"contestant\": %S, \"round\": %d, \"answer\": \"%d\", \
         \"figures\": %s}}"
        (Row.to_string run.row) run.contestant run.round check figures
  | Error why ->
      Printf.sprintf "{\"out\": {\"row\": %S, \"contestant\": %S, \"why\": %s}}"
        (Row.to_string run.row) run.contestant
        (quoted ("failed: " ^ why))

let of_line text =
  match
    Scanf.sscanf text
      "{\"turn\": {\"row\": %S, \"contestant\": %S, \"round\": %d, \"answer\": \"%d\", \
       \"figures\": %s@\n"
      (fun row contestant round check rest ->
        (* Without the braces of the record. *)
        let figures = String.sub rest 0 (String.length rest - 2) in
        Option.map
          (fun row -> { row; contestant; round; outcome = Ok (check, figures) })
          (Row.of_string row))
  with
  | run -> run
  | exception (Scanf.Scan_failure _ | End_of_file | Failure _ | Invalid_argument _) -> None

(* ---- Columns, targets and charts ------------------------------------------------------------- *)

let reference = Contestant.reference

let columns row =
  let ratio heading = Printf.sprintf ", \"ratios\": {%S: %S}" heading reference in
  let column (figure, more) = Printf.sprintf "{\"figure\": \"%s\"%s}" figure more in
  Printf.sprintf "{\"columns\": [%s]}"
    (String.concat ", "
       (List.map column
          [
            (Sample.rate row, ", \"range\": true" ^ ratio "speed");
            (Sample.cpu, ratio "CPU");
            ("vol. switches", "");
            ("invol.", "");
            (Sample.calls, "");
            ("minor words", "");
            ("promoted", "");
            (Sample.major_words, "");
            ("peak MiB", "");
          ]))

let ours = [ "File"; "File/bytes"; "Ringway_lwt.Unix"; "Reader"; "Io" ]

(* Contestants, a figure, the contestant that it is compared with, and the bound. *)
let targets row =
  let least bound = Printf.sprintf "{\"least\": %g}" bound in
  let most bound = Printf.sprintf "{\"most\": %g}" bound in
  let rate = Sample.rate row and cpu = Sample.cpu in
  let file against bound = ([ "File" ], rate, Some against, least bound) in
  (match row with
  | Row.Checksum { cold = false; _ } ->
      [
        (ours, rate, Some "Lwt_unix", least 3.);
        (ours, rate, Some "Unix", least (1. /. 1.15));
        (ours, Sample.switches, Some "Lwt_unix", most 0.01);
      ]
  | Checksum { cold = true; _ } -> [ (ours, rate, Some "Unix", least 1.) ]
  | Reads { direct = true; promises = 1 } -> [ file "Lwt_unix" 1.; file "Eio" 1. ]
  | Reads { direct = true; _ } ->
      [
        file "Lwt_unix" 2.;
        ([ "File" ], cpu, Some "Lwt_unix", most (1. /. 3.));
        file "Eio" 1.;
      ]
  | Reads { direct = false; _ } -> [ file "Lwt_unix" 5. ]
  | Tcp _ | Echo _ ->
      [
        ([ "Lwt_unix/ringway"; "Reader" ], cpu, Some "Lwt_unix", most 1.);
        ([ "Lwt_io/ringway" ], cpu, Some "Lwt_io", most 1.);
      ])
  @ [ (ours, Sample.major_words, None, most 0.05) ]

let target_lines row =
  List.concat_map
    (fun (names, figure, against, bound) ->
      let measure =
        match against with
        | None -> "\"value\""
        | Some other -> Printf.sprintf "{\"ratio\": %S}" other
      in
      List.map
        (fun name ->
          Printf.sprintf
            "{\"target\": {\"row\": %S, \"contestant\": %S, \"figure\": \"%s\", \"measure\": %s, \
             \"bound\": %s}}"
            (Row.to_string row) name figure measure bound)
        names)
    (targets row)

(* Figures of the checksum rows against the size of the file. *)
let chart_lines rows =
  let place = function
    | Row.Checksum { mib; cold = false } as row ->
        Some (Printf.sprintf "[%S, %d]" (Row.to_string row) mib)
    | _ -> None
  in
  let places = String.concat ", " (List.filter_map place rows) in
  let chart file figure text more =
    Printf.sprintf
      "{\"lines\": {\"file\": \"ocaml-checksum-%s.svg\", \"figure\": \"%s\", \"x_label\": \"%s \
       against the size of the file in MiB\", %s, \"rows\": [%s]}}"
      file figure text more places
  in
  [
    chart "time" Sample.seconds "Run time in seconds" "\"logarithmic\": true";
    chart "relative" Sample.seconds "Run time in percent of Lwt_unix's"
      (Printf.sprintf "\"relative\": %S" reference);
    chart "switches" Sample.switches_and_one "Context switches + 1" "\"logarithmic\": true";
  ]

(* ---- All of it ------------------------------------------------------------------------------- *)

let machine () =
  let first_line command =
    let channel = Unix.open_process_in command in
    let line = try input_line channel with End_of_file -> "?" in
    ignore (Unix.close_process_in channel);
    line
  in
  Printf.sprintf "%s processors, Linux %s, OCaml %s, Lwt %s %s, ringway %s" (first_line "nproc")
    (first_line "uname -r") Sys.ocaml_version
    (first_line "ocamlfind query -format %v lwt 2>/dev/null")
    (if Lwt_sys.have `libev then "with libev" else "without libev")
    Ringway.Queue.version

(* Today, with the options. *)
let command () =
  let day = Unix.gmtime (Unix.time ()) in
  let options = String.concat " " (List.tl (Array.to_list Sys.argv)) in
  Printf.sprintf "`make ocaml-bench` on %04d-%02d-%02d%s:" (day.tm_year + 1900) (day.tm_mon + 1)
    day.tm_mday
    (if options = "" then "" else Printf.sprintf " with `ARGS='%s'`" options)

let heads =
  [
    "Medians; speed and CPU: relative to Lwt_unix, medians of the ratios of the same round.";
    "CPU µs, context switches, system calls and allocated words are per operation, of all threads;";
    "system calls were counted in a run of their own.";
  ]

let print runs =
  let rows =
    List.fold_left (fun rows run -> if List.mem run.row rows then rows else run.row :: rows) [] runs
    |> List.rev
  in
  let head text = Printf.printf "{\"head\": %s}\n" (quoted text) in
  List.iter head (command () :: (machine () ^ ".") :: heads);
  List.iter
    (fun row ->
      print_endline (columns row);
      List.iter (fun run -> if run.row = row then print_endline (line run)) runs)
    rows;
  List.iter print_endline (List.concat_map target_lines rows);
  List.iter print_endline (chart_lines rows);
  let about name text = Printf.printf "{\"about\": [%S, %s]}\n" name (quoted text) in
  List.iter (fun row -> about (Row.to_string row) (String.capitalize_ascii (Row.title row))) rows;
  List.iter (fun (c : Contestant.t) -> about c.name c.about) Contestant.all
