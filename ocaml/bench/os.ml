type usage = { user_ns : int; system_ns : int; voluntary : int; involuntary : int }

external usage : unit -> usage = "ringway_bench_usage"

type counter = Unix.file_descr

external count_calls : unit -> int = "ringway_bench_count_calls"
external calls : counter -> int = "ringway_bench_calls"
external descriptor : int -> Unix.file_descr = "%identity"
external open_direct : string -> Unix.file_descr = "ringway_bench_open_direct"
external drop_pages : Unix.file_descr -> unit = "ringway_bench_drop_cache"
external use_first_processor : unit -> unit = "ringway_bench_use_first_processor"
external pread : Unix.file_descr -> Ringway.Buffer.t -> int -> pos:int -> int
  = "ringway_bench_pread"

let count_calls () = match count_calls () with -1 -> None | fd -> Some (descriptor fd)

let peak_rss () =
  let status = open_in "/proc/self/status" in
  let rec find () =
    match Scanf.sscanf (input_line status) "VmHWM: %d kB" Fun.id with
    | kib -> kib
    | exception Scanf.Scan_failure _ -> find ()
  in
  Fun.protect find ~finally:(fun () -> close_in status)

let drop_cache path =
  let fd = Unix.openfile path [ O_RDWR; O_CLOEXEC ] 0 in
  Fun.protect
    ~finally:(fun () -> Unix.close fd)
    (fun () ->
      Unix.fsync fd;
      drop_pages fd)
