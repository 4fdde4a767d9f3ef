type run = {
  row : Row.t;
  contestant : string;
  round : int;
  outcome : (Sample.t, string) result;
}

(* ---- Figures --------------------------------------------------------------------------------- *)

let of_contestant runs row name =
  List.filter (fun run -> run.row = row && run.contestant = name) runs

let samples runs row name =
  List.filter_map
    (fun run -> if run.round = 0 then None else Result.to_option run.outcome)
    (of_contestant runs row name)

let middle = function
  | [] -> nan
  | list ->
      let sorted = Array.of_list (List.sort compare list) in
      let n = Array.length sorted in
      (sorted.((n - 1) / 2) +. sorted.(n / 2)) /. 2.

let median figure samples = middle (List.map figure samples)

let distinct list =
  List.rev (List.fold_left (fun seen x -> if List.mem x seen then seen else x :: seen) [] list)

let rows runs = distinct (List.map (fun run -> run.row) runs)

(* In the order of Contestant.all. *)
let contestants runs row =
  List.filter
    (fun name -> of_contestant runs row name <> [])
    (List.map (fun (c : Contestant.t) -> c.name) Contestant.all)

let per_op figure (s : Sample.t) = figure s /. float (max 1 s.ops)
let seconds (s : Sample.t) = float s.ns /. 1e9
let ops_per_second (s : Sample.t) = float s.ops /. seconds s
let mb_per_second (s : Sample.t) = float s.bytes /. 1e6 /. seconds s
let rate row = if Row.is_stream row then mb_per_second else ops_per_second
let cpu_us = per_op (fun s -> float (Sample.cpu_ns s) /. 1e3)
let switches (s : Sample.t) = float (s.voluntary + s.involuntary)
let minor_words = per_op (fun s -> s.minor_words)
let major_words = per_op (fun s -> s.major_words)

(* Median of the ratios of the two contestants' runs in the same round. *)
let ratio runs row figure name other =
  let timed name =
    List.filter (fun run -> run.round > 0) (of_contestant runs row name)
  in
  middle
    (List.filter_map
       (fun run ->
         match
           (run.outcome, List.find_opt (fun run' -> run'.round = run.round) (timed other))
         with
         | Ok sample, Some { outcome = Ok sample'; _ } -> Some (figure sample /. figure sample')
         | _ -> None)
       (timed name))

let spread figure samples =
  match List.map figure samples with
  | [] | [ _ ] -> nan
  | first :: rest as all ->
      (List.fold_left max first rest -. List.fold_left min first rest) /. 2. /. middle all

let calls_per_op runs row name =
  match List.find_opt (fun run -> run.round = 0) (of_contestant runs row name) with
  | Some { outcome = Ok sample; _ } when sample.calls >= 0 ->
      per_op (fun s -> float s.calls) sample
  | _ -> nan

(* ---- Text ------------------------------------------------------------------------------------ *)

let grouped n =
  let digits = string_of_int n in
  let len = String.length digits in
  String.concat ""
    (List.init len (fun i ->
         (if i > 0 && (len - i) mod 3 = 0 then "," else "") ^ String.make 1 digits.[i]))

(* Three digits. *)
let digits x =
  if Float.is_nan x then "–"
  else if Float.abs x < 0.0005 then "0"
  else if Float.abs x < 1. then Printf.sprintf "%.3f" x
  else if Float.abs x < 10. then Printf.sprintf "%.2f" x
  else if Float.abs x < 100. then Printf.sprintf "%.1f" x
  else grouped (int_of_float (Float.round x))

let times x = if Float.is_nan x then "–" else Printf.sprintf "%s×" (digits x)
let percent x = if Float.is_nan x then "–" else Printf.sprintf "±%.0f %%" (x *. 100.)

type column = { heading : Row.t -> string; text : run list -> Row.t -> string -> string }

let column heading text = { heading = (fun _ -> heading); text }

let figure heading f =
  column heading (fun runs row name -> digits (median f (samples runs row name)))


let columns =
  [
    column "contestant" (fun _ _ name -> name);
    {
      heading = (fun row -> if Row.is_stream row then "MB/s" else Row.operation row ^ "s/s");
      text = (fun runs row name -> digits (median (rate row) (samples runs row name)));
    };
    column "spread" (fun runs row name -> percent (spread (rate row) (samples runs row name)));
    column "speed" (fun runs row name ->
        times (ratio runs row (rate row) name Contestant.reference));
    figure "CPU µs" cpu_us;
    column "CPU" (fun runs row name -> times (ratio runs row cpu_us name Contestant.reference));
    figure "vol. switches" (per_op (fun s -> float s.voluntary));
    figure "invol." (per_op (fun s -> float s.involuntary));
    column "calls" (fun runs row name -> digits (calls_per_op runs row name));
    figure "minor words" minor_words;
    figure "promoted" (per_op (fun s -> s.promoted_words));
    figure "major" major_words;
    figure "peak MiB" (fun s -> float s.peak_rss /. 1024.);
  ]

let headings row = List.map (fun column -> column.heading row) columns

let fields runs row name = List.map (fun column -> column.text runs row name) columns

(* The characters of UTF-8 text. *)
let width text =
  let count = ref 0 in
  String.iter (fun c -> if Char.code c land 0xc0 <> 0x80 then incr count) text;
  !count

let failures runs row name =
  List.filter_map
    (fun run -> match run.outcome with Error text -> Some text | Ok _ -> None)
    (of_contestant runs row name)

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

(* ---- Targets --------------------------------------------------------------------------------- *)

type target = {
  applies : Row.t -> bool;
  names : string list;
  against : string;
  text : string;
  of_ratio : Row.t -> Sample.t -> float;
  bound : float;
  at_least : bool;
}

let ours = [ "File"; "File/bytes"; "Ringway_lwt.Unix"; "Reader"; "Io" ]
let checksum = function Row.Checksum { cold; _ } -> not cold | _ -> false
let cold = function Row.Checksum { cold; _ } -> cold | _ -> false
let socket = function Row.Tcp _ | Echo _ -> true | _ -> false
let cached = function Row.Reads { direct; _ } -> not direct | _ -> false

let direct_with promises_match = function
  | Row.Reads { direct = true; promises } -> promises_match promises
  | _ -> false

let many promises = promises > 1
let one promises = promises = 1

let target applies names against text of_ratio bound at_least =
  { applies; names; against; text; of_ratio; bound; at_least }

let cpu _ = cpu_us

let targets =
  [
    target checksum ours "Lwt_unix" "speed" rate 3. true;
    target checksum ours "Unix" "speed" rate (1. /. 1.15) true;
    target checksum ours "Lwt_unix" "context switches" (fun _ -> switches) 0.01 false;
    target cold ours "Unix" "speed" rate 1. true;
    target (direct_with many) [ "File" ] "Lwt_unix" "speed" rate 2. true;
    target (direct_with many) [ "File" ] "Lwt_unix" "CPU time" cpu (1. /. 3.) false;
    target (direct_with many) [ "File" ] "Eio" "speed" rate 1. true;
    target (direct_with one) [ "File" ] "Lwt_unix" "speed" rate 1. true;
    target (direct_with one) [ "File" ] "Eio" "speed" rate 1. true;
    target cached [ "File" ] "Lwt_unix" "speed" rate 5. true;
    target socket [ "Lwt_unix/ringway"; "Reader" ] "Lwt_unix" "CPU time" cpu 1. false;
    target socket [ "Lwt_io/ringway" ] "Lwt_io" "CPU time" cpu 1. false;
  ]

let print_targets runs =
  List.iter
    (fun row ->
      List.iter
        (fun { applies; names; against; text; of_ratio; bound; at_least } ->
          if applies row then
            List.iter
              (fun name ->
                let ratio = ratio runs row (of_ratio row) name against in
                if not (Float.is_nan ratio) then
                  Printf.printf "%-8s %-14s %-16s %s %s of %s; wanted: %s %s\n"
                    (if (if at_least then ratio >= bound else ratio <= bound) then "reached"
                    else "missed")
                    (Row.to_string row) name text (times ratio) against
                    (if at_least then "at least" else "at most")
                    (times bound))
              names)
        targets;
      List.iter
        (fun name ->
          let words = median major_words (samples runs row name) in
          if List.mem name ours && words >= 0.05 then
            Printf.printf "missed   %-14s %-16s %s words in the major heap per %s; wanted: none\n"
              (Row.to_string row) name (digits words) (Row.operation row))
        (contestants runs row))
    (rows runs)

(* ---- Reports --------------------------------------------------------------------------------- *)

let print_row runs row =
  let names = contestants runs row in
  let lines = headings row :: List.map (fields runs row) names in
  let widths =
    List.fold_left
      (fun widths line -> List.map2 max widths (List.map width line))
      (List.map (fun _ -> 0) columns)
      lines
  in
  Printf.printf "\n%s (%s)\n" (Row.title row) (Row.to_string row);
  List.iter
    (fun line ->
      let pad index width' text =
        let space = String.make (width' - width text) ' ' in
        if index = 0 then text ^ space else space ^ text
      in
      print_endline ("  " ^ String.concat "  " (List.mapi (fun i (w, t) -> pad i w t)
        (List.combine widths line))))
    lines

let print_failures runs =
  List.iter
    (fun row ->
      List.iter
        (fun name ->
          List.iter
            (Printf.printf "%s, %s failed: %s\n" (Row.to_string row) name)
            (distinct (failures runs row name)))
        (contestants runs row))
    (rows runs)

let print runs =
  print_endline (machine ());
  print_endline
    "Medians. speed and CPU: relative to Lwt_unix, medians of the ratios of the same round.\n\
     CPU µs, context switches, system calls and allocated words are per operation, of all\n\
     threads; system calls were counted in a run of their own.";
  List.iter (print_row runs) (rows runs);
  print_newline ();
  print_failures runs;
  print_targets runs;
  print_newline ();
  List.iter
    (fun (c : Contestant.t) ->
      if List.exists (fun run -> run.contestant = c.name) runs then
        Printf.printf "%-16s %s\n" c.name c.about)
    Contestant.all

let json_of_run run =
  let outcome =
    match run.outcome with
    | Error text -> Printf.sprintf "\"error\": %S" text
    | Ok s ->
        Printf.sprintf
          "\"ns\": %d, \"ops\": %d, \"bytes\": %d, \"user_ns\": %d, \"system_ns\": %d, \
           \"voluntary_switches\": %d, \"involuntary_switches\": %d, \"system_calls\": %s, \
           \"peak_rss_kib\": %d, \"minor_words\": %.0f, \
           \"promoted_words\": %.0f, \"major_words\": %.0f"
          s.ns s.ops s.bytes s.user_ns s.system_ns s.voluntary s.involuntary
          (if s.calls < 0 then "null" else string_of_int s.calls)
          s.peak_rss s.minor_words s.promoted_words s.major_words
  in
  Printf.sprintf "    {\"row\": %S, \"contestant\": %S, \"round\": %d, %s}"
    (Row.to_string run.row) run.contestant run.round outcome

let with_output path f =
  let channel = open_out path in
  Fun.protect (fun () -> f channel) ~finally:(fun () -> close_out channel)

let write_json path runs =
  with_output path (fun channel ->
      Printf.fprintf channel "{\n  \"machine\": %S,\n  \"runs\": [\n%s\n  ]\n}\n" (machine ())
        (String.concat ",\n" (List.map json_of_run runs)))

(* Of the rows that differ in size only, one: 256 MiB if it was measured. *)
let rows_for_page runs =
  let all = rows runs in
  let one sized =
    match List.filter_map (fun row -> Option.map (fun mib -> (mib, row)) (sized row)) all with
    | [] -> None
    | (_, first) :: _ as found -> Some (Option.value (List.assoc_opt 256 found) ~default:first)
  in
  let chosen =
    List.filter_map one
      [
        (function Row.Checksum { mib; cold = false } -> Some mib | _ -> None);
        (function Row.Checksum { mib; cold = true } -> Some mib | _ -> None);
        (function Row.Tcp { mib } -> Some mib | _ -> None);
      ]
  in
  List.filter
    (fun row -> match row with Row.Reads _ | Echo _ -> true | _ -> List.mem row chosen)
    all

let markdown ~command runs =
  let line fields = "| " ^ String.concat " | " fields ^ " |\n" in
  let table row =
    let names = contestants runs row in
    let rule = List.mapi (fun index _ -> if index = 0 then "---" else "---:") columns in
    let title = String.capitalize_ascii (Row.title row) in
    Printf.sprintf "%s (`%s`):\n\n%s%s%s" title (Row.to_string row)
      (line (headings row))
      ("|" ^ String.concat "|" rule ^ "|\n")
      (String.concat ""
         (List.map
            (fun name ->
              match fields runs row name with
              | name :: rest -> line (Printf.sprintf "`%s`" name :: rest)
              | [] -> assert false)
            names))
  in
  let day = Unix.gmtime (Unix.time ()) in
  Printf.sprintf "`%s`, %04d-%02d-%02d:\n%s.\n\n%s" command (day.tm_year + 1900)
    (day.tm_mon + 1) day.tm_mday (machine ())
    (String.concat "\n" (List.map table (rows_for_page runs)))

let read_file path =
  let channel = open_in_bin path in
  Fun.protect
    (fun () -> really_input_string channel (in_channel_length channel))
    ~finally:(fun () -> close_in channel)

let write_into_page page text =
  let lines = String.split_on_char '\n' (read_file page) in
  let begins = "<!-- ocaml-bench: begin -->" and ends = "<!-- ocaml-bench: end -->" in
  if not (List.mem begins lines && List.mem ends lines) then
    failwith (page ^ " has no place for the figures: " ^ begins);
  let _, result =
    List.fold_left
      (fun (inside, result) line ->
        if line = begins then (true, "" :: String.trim text :: "" :: line :: result)
        else if line = ends then (false, line :: result)
        else (inside, if inside then result else line :: result))
      (false, []) lines
  in
  with_output page (fun channel -> output_string channel (String.concat "\n" (List.rev result)))
