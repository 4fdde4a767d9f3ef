(* What the tests of this directory share: the two ways to run, temporary files, and checks. *)

open Lwt.Infix

let on_our_engine = Sys.getenv_opt "RINGWAY_TEST_WAY" = Some "engine"

(* Ends the process if this machine cannot run in this way. *)
let set_up () =
  Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
  let skip reason =
    print_endline ("skipped: " ^ reason);
    exit 0
  in
  if on_our_engine then begin
    match Ringway_lwt.Engine.install () with
    | Ok () -> ()
    | Error reason -> skip ("no engine: " ^ reason)
  end
  else
    match Ringway.Queue.create () with
    | queue -> Ringway.Queue.close queue
    | exception Ringway.Queue.Error { message; _ } -> skip ("no queue: " ^ message)

(* Real work takes milliseconds; this only ends a test that hangs. *)
let run f =
  Lwt_main.run
    (Lwt.pick [ f (); (Lwt_unix.sleep 60. >>= fun () -> Lwt.fail (Failure "the test hangs")) ])

let directory =
  lazy
    (let path = Filename.temp_file "ringway_io" "" in
     Sys.remove path;
     Unix.mkdir path 0o700;
     at_exit (fun () -> ignore (Sys.command (Filename.quote_command "rm" [ "-rf"; path ])));
     path)

let in_directory name = Filename.concat (Lazy.force directory) name
let counter = ref 0

let new_path () =
  incr counter;
  in_directory (Printf.sprintf "file%d" !counter)

let write_file path contents =
  let channel = open_out_bin path in
  output_string channel contents;
  close_out channel

let file_contents path =
  let channel = open_in_bin path in
  let contents = really_input_string channel (in_channel_length channel) in
  close_in channel;
  contents

let new_file contents =
  let path = new_path () in
  write_file path contents;
  path

(* Differs at every offset, with lines of different lengths. *)
let pattern length =
  String.init length (fun i ->
      if i * 7919 mod 83 = 0 then '\n' else Char.chr (((i * 31) + (i / 251)) land 255))

(* Removes a file from the page cache. *)
let drop_cache path =
  let fd = Unix.openfile path [ O_RDWR ] 0 in
  Unix.fsync fd;
  let dont_need = 4 in
  Ringway_lwt.Promise.run "fadvise" ""
    (Ringway.Operation.fadvise fd ~off:0 ~len:0 ~advice:dont_need)
    ignore
  >|= fun () -> Unix.close fd

(* What is open, except the directory that lists it. *)
let open_descriptors () =
  let target name =
    match Unix.readlink (Filename.concat "/proc/self/fd" name) with
    | target -> Some target
    | exception Unix.Unix_error _ -> None
  in
  List.sort compare (List.filter_map target (Array.to_list (Sys.readdir "/proc/self/fd")))

(* Opens what Lwt and the queue open when they first need it, and keep: Lwt's threads a pipe, those
   of the queue an eventfd for the thread that watches timers, connections and slow calls, and a
   ring an eventfd for its threads, which read files of procfs. *)
let open_kept_descriptors () =
  Lwt_unix.stat "/" >>= fun _ ->
  Ringway_lwt.Reader.with_file "/proc/self/stat" Ringway_lwt.Reader.read_line >>= fun _ ->
  Lwt.catch
    (fun () -> Ringway_lwt.Promise.run "timeout" "" (Ringway.Operation.timeout 1) ignore)
    (function Unix.Unix_error _ -> Lwt.return_unit | exn -> Lwt.fail exn)

let check_descriptors expected =
  Alcotest.(check (list string)) "open descriptors" expected (open_descriptors ())

let result f =
  Lwt.catch (fun () -> f () >|= fun value -> Ok value) (fun exn -> Lwt.return (Error exn))

let show_exn = Printexc.to_string

(* The promise fails with the exception. *)
let fails name expected f =
  result f >|= function
  | Ok _ -> Alcotest.failf "%s: succeeded instead of %s" name (show_exn expected)
  | Error exn -> Alcotest.(check string) name (show_exn expected) (show_exn exn)

let test name f = Alcotest.test_case name `Quick (fun () -> run f)

let test_no_leak name f =
  test name (fun () ->
      open_kept_descriptors () >>= fun () ->
      let before = open_descriptors () in
      f () >|= fun () -> check_descriptors before)

let string = Alcotest.string
let int = Alcotest.int
let bool = Alcotest.bool
let check = Alcotest.check

let socket_pair () = Lwt_unix.socketpair ~cloexec:true PF_UNIX SOCK_STREAM 0

let rec pauses n = if n = 0 then Lwt.return_unit else Lwt.pause () >>= fun () -> pauses (n - 1)

(* The test fails by its time limit if this never holds. *)
let rec until condition =
  if condition () then Lwt.return_unit
  else Lwt_unix.sleep 0.001 >>= fun () -> until condition
