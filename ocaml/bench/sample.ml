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

let to_string t =
  Printf.sprintf "%d %d %d %d %d %d %d %d %d %.0f %.0f %.0f %d" t.ns t.ops t.bytes
    t.user_ns t.system_ns t.voluntary t.involuntary t.calls t.peak_rss t.minor_words
    t.promoted_words t.major_words t.check

let of_string text =
  match
    Scanf.sscanf text "%d %d %d %d %d %d %d %d %d %f %f %f %d"
      (fun
        ns
        ops
        bytes
        user_ns
        system_ns
        voluntary
        involuntary
        calls
        peak_rss
        minor_words
        promoted_words
        major_words
        check
      ->
        {
          ns;
          ops;
          bytes;
          user_ns;
          system_ns;
          voluntary;
          involuntary;
          calls;
          peak_rss;
          minor_words;
          promoted_words;
          major_words;
          check;
        })
  with
  | t -> Some t
  | exception (Scanf.Scan_failure _ | End_of_file | Failure _) -> None

let cpu_ns t = t.user_ns + t.system_ns

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
