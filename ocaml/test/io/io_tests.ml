(* Tests of Io: the same calls on Lwt_io's channels and on ours give the same results. *)

open Lwt.Infix
open Common

(* A program for Lwt_io compiles with Io in its place. *)
module type CHANNELS = module type of struct
  include Lwt_io
end

module Ours : CHANNELS = Ringway_lwt.Io
module Io = Ringway_lwt.Io

module type WAY = sig
  val open_file :
    ?buffer:Lwt_bytes.t ->
    ?flags:Unix.open_flag list ->
    ?perm:Unix.file_perm ->
    mode:'a Lwt_io.mode ->
    string ->
    'a Lwt_io.channel Lwt.t
end

let observe f =
  result f >|= function
  | Ok observation -> observation
  | Error exn -> "raises " ^ show_exn exn

let unit f = observe (fun () -> f () >|= fun () -> "unit")
let number f = observe (fun () -> f () >|= Int64.to_string)
let int_result f = observe (fun () -> f () >|= string_of_int)

(* Generators of calls, which have a name: without an argument, and with one of a range. *)
let plain weight name call = (weight, QCheck.Gen.return (name, call))

let on weight name least most call =
  let named n = (Printf.sprintf "%s %d" name n, fun channel -> call channel n) in
  (weight, QCheck.Gen.map named (QCheck.Gen.int_range least most))

let common () =
  let open Lwt_io in
  [
    on 3 "set_position" (-2) 40_000 (fun c n -> unit (fun () -> set_position c (Int64.of_int n)));
    plain 2 "position" (fun c -> number (fun () -> Lwt.return (position c)));
    plain 2 "length" (fun c -> number (fun () -> length c));
    on 1 "resize_buffer" 16 9_000 (fun c n -> unit (fun () -> resize_buffer c n));
    plain 1 "buffered" (fun c -> int_result (fun () -> Lwt.return (buffered c)));
  ]

let input_calls =
  let open Lwt_io in
  let into n f =
    let bytes = Bytes.make n '.' in
    observe (fun () -> f bytes >|= fun result -> result ^ Bytes.to_string bytes)
  in
  QCheck.Gen.frequency
    ([
       plain 3 "read_char" (fun c -> observe (fun () -> read_char c >|= String.make 1));
       plain 3 "read_line" (fun c -> observe (fun () -> read_line c));
       on 3 "read" 1 10_000 (fun c n -> observe (fun () -> read ~count:n c));
       on 3 "read_into" 1 10_000 (fun c n ->
           into n (fun bytes -> read_into c bytes 0 n >|= string_of_int));
       on 3 "read_into_exactly" 0 10_000 (fun c n ->
           into n (fun bytes -> read_into_exactly c bytes 0 n >|= fun () -> ""));
       plain 2 "read_int" (fun c -> int_result (fun () -> BE.read_int c));
     ]
    @ common ())

let output_calls =
  let open Lwt_io in
  QCheck.Gen.frequency
    ([
       on 5 "write" 0 10_000 (fun c n -> unit (fun () -> write c (pattern n)));
       plain 3 "write_char" (fun c -> unit (fun () -> write_char c 'c'));
       on 3 "write_from" 1 10_000 (fun c n ->
           int_result (fun () -> write_from c (Bytes.of_string (pattern n)) 0 n));
       plain 3 "flush" (fun c -> unit (fun () -> flush c));
     ]
    @ common ())

(* What a program sees that makes the calls one after another, and the contents in the end. *)
let trace (type m) (module Way : WAY) (mode : m Lwt_io.mode) (choice, calls) =
  let path = new_file (pattern 30_000) in
  let buffer = if choice land 1 = 0 then None else Some (Lwt_bytes.create 100) in
  let flags =
    match mode with
    | Input -> None
    | Output -> Some (if choice land 2 = 0 then [ Unix.O_WRONLY; O_APPEND ] else [ O_WRONLY ])
  in
  run (fun () ->
      Way.open_file ?buffer ?flags ~mode path >>= fun channel ->
      Lwt_list.map_s (fun (_, call) -> call channel) calls >>= fun trace ->
      Lwt_io.close channel >|= fun () ->
      let contents = file_contents path in
      Sys.remove path;
      (trace, contents))

let same_traces name calls mode =
  let sequences =
    QCheck.make
      QCheck.Gen.(pair (int_range 0 3) (list_size (int_range 1 30) calls))
      ~print:(fun (choice, calls) ->
        Printf.sprintf "%d: %s" choice (String.concat "; " (List.map fst calls)))
  in
  let test =
    QCheck.Test.make ~name ~count:300 sequences (fun sequence ->
        trace (module Lwt_io) mode sequence = trace (module Ringway_lwt.Io) mode sequence)
  in
  Alcotest.test_case name `Quick (fun () ->
      QCheck.Test.check_exn ~rand:(Random.State.make [| 3 |]) test)

let same name f =
  observe (fun () -> f (module Lwt_io : CHANNELS)) >>= fun expected ->
  observe (fun () -> f (module Ours : CHANNELS)) >|= check string name expected

let same_errors () =
  let missing = in_directory "missing" in
  let directory = Lazy.force directory in
  let opens name ?flags ?buffer ~mode path =
    same name (fun (module Way) ->
        Way.open_file ?buffer ?flags ~mode path >>= fun channel ->
        Way.close channel >|= fun () -> "opened")
  in
  opens "missing" ~mode:Lwt_io.Input missing >>= fun () ->
  opens "missing directory" ~mode:Lwt_io.Output (missing ^ "/x") >>= fun () ->
  opens "directory" ~mode:Lwt_io.Output directory >>= fun () ->
  (* Lwt opens "a". *)
  fails "NUL"
    (Unix.Unix_error (ENOENT, "open", "a\000b"))
    (fun () -> Io.open_file ~mode:Input "a\000b")
  >>= fun () ->
  opens "exists"
    ~flags:[ O_WRONLY; O_CREAT; O_EXCL ]
    ~mode:Lwt_io.Output (new_file "abc")
  >>= fun () ->
  same "reading a directory" (fun (module Way) ->
      Way.with_file ~mode:Input directory (fun channel -> Way.read channel))
  >>= fun () ->
  same "a closed channel" (fun (module Way) ->
      Way.open_file ~mode:Input (new_file "abc") >>= fun channel ->
      Way.close channel >>= fun () -> Way.read channel)
  >>= fun () ->
  same "wrong flags" (fun (module Way) ->
      Way.open_file ~flags:[ O_RDONLY ] ~mode:Output (new_file "abc") >>= fun channel ->
      Way.write channel "x" >>= fun () ->
      observe (fun () -> Way.flush channel >|= fun () -> "flushed") >>= fun observation ->
      Lwt.catch (fun () -> Way.abort channel) (fun _ -> Lwt.return_unit) >|= fun () -> observation)
  >>= fun () ->
  let length name path =
    same ("file_length: " ^ name) (fun (module Way) -> Way.file_length path >|= Int64.to_string)
  in
  length "file" (new_file (pattern 12345)) >>= fun () ->
  length "missing" missing >>= fun () ->
  length "directory" directory >>= fun () ->
  fails "NUL"
    (Unix.Unix_error (ENOENT, "stat", "a\000b"))
    (fun () -> Io.file_length "a\000b")

(* Lwt_io leaves the file open. *)
let small_buffer () =
  fails "open_file"
    (Invalid_argument "Lwt_io.Lwt_io.make: too small buffer size")
    (fun () -> Io.open_file ~buffer:(Lwt_bytes.create 3) ~mode:Input (new_file "abc"))

let whole_files () =
  let lines = List.init 1000 (fun i -> String.make (i mod 90) 'x') in
  let path = new_path () in
  Io.lines_to_file path (Lwt_stream.of_list lines) >>= fun () ->
  let contents = String.concat "" (List.map (fun line -> line ^ "\n") lines) in
  check string "written" contents (file_contents path);
  drop_cache path >>= fun () ->
  Lwt_stream.to_list (Io.lines_of_file path) >>= fun read ->
  check (Alcotest.list string) "lines" lines read;
  let contents = pattern 10_000 in
  Io.chars_to_file path (Lwt_stream.of_string contents) >>= fun () ->
  check bool "characters written" true (file_contents path = contents);
  Lwt_stream.to_string (Io.chars_of_file path) >>= fun read ->
  check bool "characters" true (read = contents);
  fails "a missing file"
    (Unix.Unix_error (ENOENT, "open", "missing"))
    (fun () -> Lwt_stream.to_list (Io.lines_of_file "missing"))

let forgotten_stream () =
  let path = new_file (pattern 100_000) in
  let before = open_descriptors () in
  let start () =
    Lwt_stream.next (Io.lines_of_file path) >|= fun (_ : string) -> ()
  in
  start () >>= fun () ->
  let rec collect n =
    if n = 0 || open_descriptors () = before then Lwt.return_unit
    else begin
      Gc.full_major ();
      Lwt_unix.sleep 0.001 >>= fun () -> collect (n - 1)
    end
  in
  collect 100 >|= fun () -> check_descriptors before

(* Lwt_io flushes a channel that nobody uses; the program keeps no reference to it. *)
let forgotten_channel () =
  let path = new_path () in
  let start () =
    Io.open_file ~mode:Output path >>= fun channel -> Io.write channel "written"
  in
  start () >>= fun () ->
  until (fun () ->
      Gc.full_major ();
      file_contents path = "written")

let temp_files () =
  let dir = Lazy.force directory in
  Io.with_temp_file ~temp_dir:dir ~prefix:"p" ~suffix:".s" (fun (name, channel) ->
      Io.write channel "abc" >>= fun () ->
      Io.flush channel >|= fun () ->
      check string "contents" "abc" (file_contents name);
      check string "suffix" ".s" (Filename.extension name);
      name)
  >>= fun name ->
  check bool "deleted" false (Sys.file_exists name);
  fails "missing directory"
    (Unix.Unix_error (ENOENT, "open", ""))
    (fun () ->
      Lwt.catch
        (fun () -> Io.open_temp_file ~temp_dir:(dir ^ "/missing") ())
        (function
          | Unix.Unix_error (code, name, _) -> Lwt.fail (Unix.Unix_error (code, name, ""))
          | exn -> Lwt.fail exn))

(* Nothing is skipped or written twice, whenever the call is cancelled. *)
let cancelled_reads () =
  let contents = pattern 200_000 in
  let path = new_file contents in
  let random = Random.State.make [| 5 |] in
  drop_cache path >>= fun () ->
  Io.with_file ~buffer:(Lwt_bytes.create 1000) ~mode:Input path (fun channel ->
      let read = Stdlib.Buffer.create 200_000 in
      let rec loop () =
        let part = Io.read ~count:700 channel in
        pauses (Random.State.int random 4) >>= fun () ->
        Lwt.cancel part;
        result (fun () -> part) >>= function
        | Ok "" -> Lwt.return_unit
        | Ok part ->
            Stdlib.Buffer.add_string read part;
            loop ()
        | Error Lwt.Canceled -> loop ()
        | Error exn -> Lwt.fail exn
      in
      loop () >|= fun () -> check bool "every byte" true (Stdlib.Buffer.contents read = contents))

let cancelled_writes () =
  let path = new_path () in
  let random = Random.State.make [| 5 |] in
  let expected = Stdlib.Buffer.create 100_000 in
  Io.with_file
    ~buffer:(Lwt_bytes.create 1000)
    ~flags:[ O_WRONLY; O_CREAT; O_APPEND ]
    ~mode:Output path
    (fun channel ->
      let rec loop i =
        if i = 500 then Lwt.return_unit
        else
          let part = Printf.sprintf "%d," i in
          Stdlib.Buffer.add_string expected part;
          Io.write channel part >>= fun () ->
          let flush = Io.flush channel in
          pauses (Random.State.int random 4) >>= fun () ->
          Lwt.cancel flush;
          result (fun () -> flush) >>= fun _ -> loop (i + 1)
      in
      loop 0)
  >|= fun () ->
  check string "every byte once" (Stdlib.Buffer.contents expected) (file_contents path)

(* Lwt_io loses an error of the flush in close, and of its own flush. *)
let close_errors () =
  let path = "/proc/self/oom_score_adj" in
  let einval = Unix.Unix_error (EINVAL, "write", "") in
  Io.open_file ~flags:[ O_WRONLY ] ~mode:Output path >>= fun channel ->
  Io.write channel "no number" >>= fun () ->
  fails "flush" einval (fun () -> Io.flush channel) >>= fun () ->
  fails "close" einval (fun () -> Io.close channel) >>= fun () ->
  fails "with_file" einval (fun () ->
      Io.with_file ~flags:[ O_WRONLY ] ~mode:Output path (fun channel ->
          Io.write channel "no number"))
  >>= fun () ->
  fails "after Lwt_io's own flush" einval (fun () ->
      Io.with_file ~flags:[ O_WRONLY ] ~mode:Output path (fun channel ->
          Io.write channel "no number" >>= fun () -> pauses 20))

let atomic () =
  let dir = in_directory "atomic" in
  Unix.mkdir dir 0o700;
  let path = Filename.concat dir "file" in
  let listing () = Array.to_list (Sys.readdir dir) in
  let umask = Unix.umask 0o022 in
  Io.with_atomic_file path (fun channel ->
      Io.write channel "first" >>= fun () ->
      Io.flush channel >|= fun () ->
      check bool "not yet there" false (Sys.file_exists path))
  >>= fun () ->
  check string "created" "first" (file_contents path);
  check int "permissions" 0o644 (Unix.stat path).st_perm;
  Io.with_atomic_file ~perm:0o600 path (fun channel ->
      Io.write channel (pattern 100_000) >|= fun () ->
      check string "the old contents" "first" (file_contents path))
  >>= fun () ->
  check bool "replaced" true (file_contents path = pattern 100_000);
  check int "given permissions" 0o600 (Unix.stat path).st_perm;
  ignore (Unix.umask umask);
  fails "the exception of f" Exit (fun () ->
      Io.with_atomic_file path (fun channel -> Io.write channel "bad" >>= fun () -> raise Exit))
  >>= fun () ->
  let never, _ = Lwt.task () in
  let cancelled =
    Io.with_atomic_file path (fun channel -> Io.write channel "bad" >>= fun () -> never)
  in
  until (fun () -> List.length (listing ()) = 2) >>= fun () ->
  Lwt.cancel cancelled;
  fails "cancelled" Lwt.Canceled (fun () -> cancelled) >>= fun () ->
  fails "a closed channel" (Io.Channel_closed "output") (fun () ->
      Io.with_atomic_file path (fun channel -> Io.close channel))
  >>= fun () ->
  check bool "as before" true (file_contents path = pattern 100_000);
  check (Alcotest.list string) "no temporary file" [ "file" ] (listing ());
  let sub = Filename.concat dir "sub" in
  Unix.mkdir sub 0o700;
  result (fun () -> Io.with_atomic_file sub (fun channel -> Io.write channel "x"))
  >>= fun outcome ->
  (match outcome with
  | Error (Unix.Unix_error (_, "rename", _)) -> ()
  | Error exn -> Alcotest.fail (show_exn exn)
  | Ok () -> Alcotest.fail "replaced a directory");
  check int "no temporary file of the failed rename" 2 (List.length (listing ()));
  Lwt.return_unit

(* A program may cancel again while the first cancellation cleans up. *)
let cancelled_again () =
  let dir = in_directory "cancelled" in
  Unix.mkdir dir 0o700;
  let case name with_file =
    let opened = ref false in
    let promise =
      with_file (fun channel ->
          opened := true;
          Io.write channel "bad" >>= fun () -> fst (Lwt.task ()))
    in
    let rec cancel () =
      if Lwt.is_sleeping promise then begin
        Lwt.cancel promise;
        Lwt.pause () >>= cancel
      end
      else Lwt.return_unit
    in
    until (fun () -> !opened) >>= fun () ->
    cancel () >>= fun () ->
    fails name Lwt.Canceled (fun () -> promise) >|= fun () ->
    check int (name ^ ": files left") 0 (Array.length (Sys.readdir dir))
  in
  case "atomic file" (Io.with_atomic_file (Filename.concat dir "file")) >>= fun () ->
  case "temporary file" (fun f -> Io.with_temp_file ~temp_dir:dir (fun (_, channel) -> f channel))

(* The system call open ignores what is no permission, such as the rest of a st_mode. *)
let permissions () =
  let umask = Unix.umask 0 in
  let write channel = Io.write channel "x" in
  let case name path =
    check int name 0o4640 (Unix.stat path).st_perm
  in
  let path = new_path () in
  Io.with_file ~perm:0o104640 ~mode:Output path write >>= fun () ->
  case "file" path;
  let path = new_path () in
  Io.with_atomic_file ~perm:0o104640 path write >|= fun () ->
  case "atomic file" path;
  ignore (Unix.umask umask)

let longest_name () =
  let path = in_directory (String.make 255 'x') in
  Io.with_atomic_file path (fun channel -> Io.write channel "contents") >|= fun () ->
  check string "contents" "contents" (file_contents path)

(* An int has no such position. On tmpfs, a file may have it. *)
let far_position () =
  let directory = "/dev/shm" in
  if not (Sys.file_exists directory) then begin
    print_endline "skipped: no /dev/shm";
    Lwt.return_unit
  end
  else begin
    let path = Filename.temp_file ~temp_dir:directory "ringway_io" "" in
    write_file path "text";
    let far = Int64.add (Int64.shift_left 1L 62) 5L in
    Lwt.finalize
      (fun () ->
        Io.with_file ~mode:Input path (fun channel ->
            Io.set_position channel far >>= fun () ->
            Io.read_char_opt channel >>= fun char ->
            Alcotest.(check (option char)) "the end" None char;
            Alcotest.(check int64) "position" far (Io.position channel);
            Io.set_position channel 1L >>= fun () ->
            Io.read channel >|= Alcotest.(check string) "the rest" "ext"))
      (fun () ->
        Sys.remove path;
        Lwt.return_unit)
  end

(* A write of an empty buffer is not a device that accepts no more bytes. *)
let direct_access () =
  let path = new_file "" in
  same "empty" (fun (module Way) ->
      Way.with_file ~mode:Output path (fun channel ->
          Way.direct_access channel (fun access -> access.da_perform ()) >|= string_of_int))
  >>= fun () ->
  same "three bytes" (fun (module Way) ->
      Way.with_file ~mode:Output path (fun channel ->
          Way.direct_access channel (fun access ->
              Lwt_bytes.blit_from_bytes (Bytes.of_string "abc") 0 access.da_buffer access.da_ptr 3;
              access.da_ptr <- access.da_ptr + 3;
              access.da_perform () >>= fun first ->
              access.da_perform () >|= Printf.sprintf "%d, then %d" first)))

let tests =
  [
    same_traces "input channels as Lwt_io's" input_calls Lwt_io.Input;
    same_traces "output channels as Lwt_io's" output_calls Lwt_io.Output;
    test_no_leak "errors as Lwt_io's" same_errors;
    test_no_leak "a buffer that is too small" small_buffer;
    test_no_leak "whole files" whole_files;
    test_no_leak "direct access" direct_access;
    test_no_leak "a position that is no int" far_position;
    test "a stream that is forgotten is closed" forgotten_stream;
    test "a channel that is forgotten is flushed" forgotten_channel;
    test_no_leak "temporary files" temp_files;
    test_no_leak "cancelled reads" cancelled_reads;
    test_no_leak "cancelled writes" cancelled_writes;
    test_no_leak "errors of close" close_errors;
    test_no_leak "atomic files" atomic;
    test_no_leak "cancelled again, it leaves no file" cancelled_again;
    test_no_leak "permissions" permissions;
    test_no_leak "an atomic file with the longest name" longest_name;
  ]
