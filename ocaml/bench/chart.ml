let width = 720.
let height = 400.
let left = 80.
let right = 590.
let top = 50.
let bottom = 350.

(* Colours that remain distinct for colour-blind readers (Okabe and Ito, darkened for white), as in
   the other charts of the project. *)
let lines =
  [
    ("Unix", "#7A828C");
    ("Lwt_unix", "#C8500A");
    ("Lwt_io", "#B57B00");
    ("File", "#0072B2");
    ("Reader", "#00805D");
    ("Eio", "#B1498C");
  ]

type chart = {
  file : string;
  title : string;
  logarithmic : bool;
  value : Report.run list -> Row.t -> string -> float;
}

let median figure runs row name = Report.median figure (Report.samples runs row name)
let run_time = median (fun (s : Sample.t) -> float s.ns /. 1e9)

let charts =
  [
    {
      file = "ocaml-checksum-time.svg";
      title = "Run time in seconds against the size of the file in MiB";
      logarithmic = true;
      value = run_time;
    };
    {
      file = "ocaml-checksum-relative.svg";
      title = "Run time in percent of Lwt_unix's against the size of the file in MiB";
      logarithmic = false;
      value =
        (fun runs row name ->
          100. *. run_time runs row name /. run_time runs row Contestant.reference);
    };
    {
      file = "ocaml-checksum-switches.svg";
      title = "Context switches + 1 against the size of the file in MiB";
      logarithmic = true;
      value = median (fun (s : Sample.t) -> float (s.voluntary + s.involuntary + 1));
    };
  ]

let text x y ~anchor ?(colour = "#20262C") content =
  Printf.sprintf
    "<text x=\"%.0f\" y=\"%.0f\" text-anchor=\"%s\" font-family=\"sans-serif\" font-size=\"13\" \
     fill=\"%s\">%s</text>\n"
    x y anchor colour content

let line ~colour ~width points =
  Printf.sprintf "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\"/>\n"
    (String.concat " " (List.map (fun (x, y) -> Printf.sprintf "%.1f,%.1f" x y) points))
    colour width

(* Powers of ten that enclose the values, or from zero to a round number. *)
let scale chart values =
  let most = List.fold_left max 0. values in
  if chart.logarithmic then begin
    let low = Float.floor (log10 (List.fold_left min most values)) in
    let high = Float.max (low +. 1.) (Float.ceil (log10 most)) in
    let ticks = List.init (int_of_float (high -. low) + 1) (fun i -> 10. ** (low +. float i)) in
    (ticks, fun value -> (log10 value -. low) /. (high -. low))
  end
  else begin
    let high = 20. *. Float.ceil (most /. 20.) in
    let ticks = List.init (int_of_float (high /. 20.) + 1) (fun i -> 20. *. float i) in
    (ticks, fun value -> value /. high)
  end

(* Labels at the ends of the lines, at least 15 apart. *)
let spread_labels labels =
  let _, placed =
    List.fold_left
      (fun (least, placed) (y, label) ->
        let y = Float.max y least in
        (y +. 15., (y, label) :: placed))
      (0., [])
      (List.sort compare labels)
  in
  placed

let svg chart runs sizes =
  let rows = List.map (fun (mib, row) -> (float mib, row)) sizes in
  let series =
    List.filter_map
      (fun (name, colour) ->
        let points =
          List.filter
            (fun (_, value) -> not (Float.is_nan value))
            (List.map (fun (mib, row) -> (mib, chart.value runs row name)) rows)
        in
        if points = [] then None else Some (name, colour, points))
      lines
  in
  let first = fst (List.hd rows) and last = fst (List.nth rows (List.length rows - 1)) in
  let x mib = left +. ((right -. left) *. log (mib /. first) /. log (last /. first)) in
  let values = List.concat_map (fun (_, _, points) -> List.map snd points) series in
  let ticks, position = scale chart values in
  let y value = bottom -. ((bottom -. top) *. position value) in
  let out = Buffer.create 4096 in
  let add = Buffer.add_string out in
  add
    (Printf.sprintf
       "<svg width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f %.0f\" \
        xmlns=\"http://www.w3.org/2000/svg\">\n"
       width height width height);
  add (Printf.sprintf "<rect width=\"%.0f\" height=\"%.0f\" fill=\"#FFFFFF\"/>\n" width height);
  add (text 16. 26. ~anchor:"start" chart.title);
  List.iter
    (fun tick ->
      add (line ~colour:"#E6E9ED" ~width:1. [ (left, y tick); (right, y tick) ]);
      add (text (left -. 8.) (y tick +. 4.) ~anchor:"end" (Printf.sprintf "%g" tick)))
    ticks;
  List.iter
    (fun (mib, _) ->
      add (text (x mib) (bottom +. 22.) ~anchor:"middle" (Printf.sprintf "%g" mib)))
    rows;
  List.iter
    (fun (_, colour, points) ->
      add (line ~colour ~width:2. (List.map (fun (mib, value) -> (x mib, y value)) points)))
    series;
  List.iter
    (fun (y, (name, colour)) -> add (text (right +. 8.) (y +. 4.) ~anchor:"start" ~colour name))
    (spread_labels
       (List.map
          (fun (name, colour, points) ->
            (y (snd (List.nth points (List.length points - 1))), (name, colour)))
          series));
  add "</svg>\n";
  Buffer.contents out

let write directory runs =
  let sizes =
    List.sort compare
      (List.filter_map
         (function Row.Checksum { mib; cold = false } as row -> Some (mib, row) | _ -> None)
         (Report.rows runs))
  in
  if List.length sizes < 2 then []
  else
    List.map
      (fun chart ->
        let path = Filename.concat directory chart.file in
        let channel = open_out path in
        Fun.protect
          (fun () -> output_string channel (svg chart runs sizes))
          ~finally:(fun () -> close_out channel);
        path)
      charts
