type t = { check : int; figures : (string * float) list }

let rate row = if Row.is_stream row then "MB/s" else Row.operation row ^ "s/s"
let cpu = "CPU µs"
let switches = "switches"
let switches_and_one = "switches + 1"
let calls = "calls"
let major_words = "major"
let seconds = "seconds"

(* Whether system calls are counted, and nothing else. *)
let counts_calls = Sys.getenv_opt "RINGWAY_BENCH_COUNT" <> None

module Window = struct
  type moment = {
    at : float;
    usage : Os.usage;
    counted : int;
    minor : float;
    promoted : float;
    major : float;
  }

  type t = { row : Row.t; counter : Os.counter option; mutable opened : moment option }

  let create row =
    { row; counter = (if counts_calls then Os.count_calls () else None); opened = None }

  let now t =
    let gc = Gc.quick_stat () in
    {
      at = Unix.gettimeofday ();
      usage = Os.usage ();
      counted = Option.fold ~none:0 ~some:Os.calls t.counter;
      minor = Gc.minor_words ();
      promoted = gc.promoted_words;
      major = gc.major_words -. gc.promoted_words;
    }

  (* What the set-up has allocated is collected before. *)
  let start t =
    Gc.full_major ();
    t.opened <- Some (now t)

  let figures row ~ops ~bytes first last =
    let per_op total = total /. float (max 1 ops) in
    let used of_usage = float (of_usage last.usage - of_usage first.usage) in
    let user = used (fun usage -> usage.Os.user_ns) and system = used (fun u -> u.system_ns) in
    let voluntary = used (fun usage -> usage.voluntary) in
    let involuntary = used (fun usage -> usage.involuntary) in
    let time = last.at -. first.at in
    let work = if Row.is_stream row then float bytes /. 1e6 else float ops in
    [
      (rate row, work /. time);
      (cpu, per_op ((user +. system) /. 1e3));
      ("vol. switches", per_op voluntary);
      ("invol.", per_op involuntary);
      ("minor words", per_op (last.minor -. first.minor));
      ("promoted", per_op (last.promoted -. first.promoted));
      (* OCaml 5 adds promoted words before the others. *)
      (major_words, per_op (Float.max 0. (last.major -. first.major)));
      ("peak MiB", float (Os.peak_rss ()) /. 1024.);
      (switches, voluntary +. involuntary);
      (switches_and_one, voluntary +. involuntary +. 1.);
      (seconds, time);
      ("user s", user /. 1e9);
      ("system s", system /. 1e9);
      ("ops", float ops);
      ("bytes", float bytes);
    ]

  let stop t ~ops ~bytes ~check =
    let first = Option.get t.opened in
    let last = now t in
    let counted = float (last.counted - first.counted) /. float (max 1 ops) in
    let figures =
      if t.counter <> None then [ (calls, counted) ]
      else if counts_calls then []
      else figures t.row ~ops ~bytes first last
    in
    { check; figures }
end
