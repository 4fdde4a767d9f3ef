type t = {
  ns : int;
  ops : int;
  bytes : int;
  user_ns : int;
  system_ns : int;
  voluntary : int;
  involuntary : int;
  calls : int;
  peak_rss : int;
  minor_words : float;
  promoted_words : float;
  major_words : float;
  check : int;
}

let rate row = if Row.is_stream row then "MB/s" else Row.operation row ^ "s/s"
let cpu = "CPU µs"
let switches = "switches"
let switches_and_one = "switches + 1"
let calls = "calls"
let major_words = "major"
let seconds = "seconds"

let figures row t =
  let per_op total = total /. float (max 1 t.ops) in
  let time = float t.ns /. 1e9 in
  let work = if Row.is_stream row then float t.bytes /. 1e6 else float t.ops in
  [
    (rate row, work /. time);
    (cpu, per_op (float (t.user_ns + t.system_ns) /. 1e3));
    ("vol. switches", per_op (float t.voluntary));
    ("invol.", per_op (float t.involuntary));
    ("minor words", per_op t.minor_words);
    ("promoted", per_op t.promoted_words);
    (major_words, per_op t.major_words);
    ("peak MiB", float t.peak_rss /. 1024.);
    (switches, float (t.voluntary + t.involuntary));
    (switches_and_one, float (t.voluntary + t.involuntary + 1));
    (seconds, time);
    ("user s", float t.user_ns /. 1e9);
    ("system s", float t.system_ns /. 1e9);
    ("ops", float t.ops);
    ("bytes", float t.bytes);
  ]

let counted t = if t.calls < 0 then [] else [ (calls, float t.calls /. float (max 1 t.ops)) ]

module Window = struct
  type moment = {
    at : float;
    usage : Os.usage;
    counted : int;
    minor : float;
    promoted : float;
    major : float;
  }

  type t = { counter : Os.counter option; mutable opened : moment option }

  let create () =
    let counter =
      if Sys.getenv_opt "RINGWAY_BENCH_COUNT" = None then None else Os.count_calls ()
    in
    { counter; opened = None }

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

  let stop t ~ops ~bytes ~check =
    let first = Option.get t.opened in
    let last = now t in
    {
      ns = int_of_float ((last.at -. first.at) *. 1e9);
      ops;
      bytes;
      user_ns = last.usage.user_ns - first.usage.user_ns;
      system_ns = last.usage.system_ns - first.usage.system_ns;
      voluntary = last.usage.voluntary - first.usage.voluntary;
      involuntary = last.usage.involuntary - first.usage.involuntary;
      calls = (if t.counter = None then -1 else last.counted - first.counted);
      peak_rss = Os.peak_rss ();
      minor_words = last.minor -. first.minor;
      promoted_words = last.promoted -. first.promoted;
      (* OCaml 5 adds promoted words before the others. *)
      major_words = Float.max 0. (last.major -. first.major);
      check;
    }
end
