(* Runs the examples as a user does: as processes, with files and sockets. *)

let check = Alcotest.check
let string = Alcotest.string
let int = Alcotest.int
let bool = Alcotest.bool
let executable name = Filename.concat (Filename.concat (Sys.getcwd ()) "..") (name ^ ".exe")

let directory =
  let path = Filename.temp_file "ringway_examples" "" in
  Sys.remove path;
  Unix.mkdir path 0o755;
  at_exit (fun () -> ignore (Sys.command (Filename.quote_command "rm" [ "-rf"; path ])));
  path

let in_directory = Filename.concat directory

let write path contents =
  let channel = open_out_bin path in
  output_string channel contents;
  close_out channel

let read_all channel =
  let buffer = Buffer.create 1000 in
  let rec loop () =
    match input_char channel with
    | c ->
        Buffer.add_char buffer c;
        loop ()
    | exception End_of_file -> Buffer.contents buffer
  in
  loop ()

(* The output and the exit status of a command. *)
let output program arguments =
  let channel = Unix.open_process_in (Filename.quote_command program arguments) in
  let output = read_all channel in
  match Unix.close_process_in channel with
  | WEXITED status -> (output, status)
  | WSIGNALED signal | WSTOPPED signal -> Alcotest.failf "%s ends by signal %d" program signal

(* The servers that run, so that a test that fails leaves none. *)
let running = ref []

let () =
  at_exit (fun () ->
      List.iter (fun pid -> try Unix.kill pid Sys.sigkill with Unix.Unix_error _ -> ()) !running)

let wait pid =
  running := List.filter (( <> ) pid) !running;
  snd (Unix.waitpid [] pid)

(* Starts a server. The results are its process, the port that it prints, and what it prints
   besides. *)
let start program arguments ~on_stderr =
  let receiver, sender = Unix.pipe ~cloexec:true () in
  let out, out_sender = Unix.pipe ~cloexec:true () in
  let stdout, stderr = if on_stderr then (out_sender, sender) else (sender, Unix.stderr) in
  let pid =
    Unix.create_process program (Array.of_list (program :: arguments)) Unix.stdin stdout stderr
  in
  running := pid :: !running;
  Unix.close sender;
  Unix.close out_sender;
  let channel = Unix.in_channel_of_descr receiver in
  let rec port () =
    let line = input_line channel in
    match Scanf.sscanf line "listening on port %d%!" Fun.id with
    | port -> port
    | exception Scanf.Scan_failure _ -> port ()
  in
  (pid, port (), Unix.in_channel_of_descr out, channel)

let connect port =
  let socket = Unix.socket ~cloexec:true PF_INET SOCK_STREAM 0 in
  Unix.connect socket (ADDR_INET (Unix.inet_addr_loopback, port));
  socket

let rec send socket data off =
  if off < String.length data then
    send socket data (off + Unix.write_substring socket data off (String.length data - off))

(* ---- count ---- *)

let data = String.init 1_000_000 (fun i -> Char.chr (i * 7919 land 255))

let expected_sum =
  Printf.sprintf "(crc %d)\n" (String.fold_left (fun sum c -> sum + Char.code c) 0 data)

let count_file () =
  let path = in_directory "data" in
  write path data;
  let result, status = output (executable "count") [ "file"; path ] in
  check string "sum" expected_sum result;
  check int "status" 0 status;
  let _, status = output (executable "count") [ "file"; in_directory "missing" ] in
  check int "status for a missing file" 1 status

let count_tcp () =
  let pid, port, out, errors = start (executable "count") [ "tcp"; "0" ] ~on_stderr:true in
  let socket = connect port in
  send socket data 0;
  Unix.close socket;
  check string "sum" expected_sum (read_all out);
  check bool "status" true (wait pid = WEXITED 0);
  close_in out;
  close_in errors

(* ---- grep ---- *)

let lines text = List.sort compare (String.split_on_char '\n' text)

let grep () =
  let tree = in_directory "tree" in
  Unix.mkdir tree 0o755;
  let add name contents = write (Filename.concat tree name) contents in
  Unix.mkdir (Filename.concat tree "sub") 0o755;
  Unix.mkdir (Filename.concat tree "empty") 0o755;
  add "plain" "one needle\nno\nNeedle two\nlast needle";
  add "sub/dots" "a.b\naxb\n[a]*\n\n";
  add "sub/crlf" "needle\r\nother\r\n";
  add "binary" "needle\000needle\n";
  add "none" "nothing\n";
  add "empty_file" "";
  add "long" (String.make 100_000 'x' ^ "needle" ^ String.make 100_000 'y' ^ "\nneedle\n");
  for i = 1 to 200 do
    add (Printf.sprintf "sub/file%d" i) (Printf.sprintf "line\nneedle %d\n" i)
  done;
  Unix.symlink "plain" (Filename.concat tree "link");
  let same arguments =
    let expected, expected_status =
      output "env" ([ "LC_ALL=C"; "grep"; "-F"; "-I" ] @ arguments)
    in
    let case arguments =
      let name = String.concat " " arguments in
      let result, status = output (executable "grep") arguments in
      check (Alcotest.list string) name (lines expected) (lines result);
      check int (name ^ ": status") expected_status status
    in
    case arguments;
    case ("-j" :: "1" :: arguments);
    case ("-j" :: "500" :: arguments)
  in
  let file name = Filename.concat tree name in
  same [ "-r"; "needle"; tree ];
  same [ "-r"; "-n"; "needle"; tree ];
  same [ "-r"; "-n"; "-i"; "NEEDLE"; tree ];
  same [ "-r"; "-l"; "needle"; tree ];
  same [ "-r"; "a.b"; tree ];
  same [ "-r"; "[a]*"; tree ];
  same [ "-r"; "absent"; tree ];
  same [ "needle"; file "plain" ];
  same [ "-n"; "needle"; file "plain"; file "none"; file "sub/crlf" ];
  same [ "needle"; file "plain"; file "missing" ];
  same [ "needle"; file "link" ];
  (* A directory that cannot be read. Root can read it. *)
  let unreadable = file "unreadable" in
  Unix.mkdir unreadable 0o700;
  add "unreadable/file" "needle\n";
  Unix.chmod unreadable 0;
  let as_other program arguments =
    if Unix.geteuid () <> 0 then output program arguments
    else output "setpriv" ("--reuid=65534" :: "--clear-groups" :: program :: arguments)
  in
  let arguments = [ "-r"; "needle"; tree ] in
  let expected, expected_status = as_other "grep" ("-F" :: "-I" :: arguments) in
  let copy = in_directory "grep" in
  check int "cp" 0 (snd (output "cp" [ executable "grep"; copy ]));
  let result, status = as_other copy arguments in
  check (Alcotest.list string) "unreadable" (lines expected) (lines result);
  check int "unreadable: status" expected_status status

(* ---- static_server ---- *)

type answer = { status : int; headers : (string * string) list; body : string }

let request port ?(meth = "GET") ?(headers = []) path =
  let socket = connect port in
  let lines = List.map (fun (name, value) -> name ^ ": " ^ value ^ "\r\n") headers in
  send socket
    (Printf.sprintf "%s %s HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n%s\r\n" meth path
       (String.concat "" lines))
    0;
  let channel = Unix.in_channel_of_descr socket in
  let answer = read_all channel in
  close_in channel;
  let head_end = Str.search_forward (Str.regexp_string "\r\n\r\n") answer 0 in
  let body = String.sub answer (head_end + 4) (String.length answer - head_end - 4) in
  match Str.split (Str.regexp_string "\r\n") (String.sub answer 0 head_end) with
  | status :: headers ->
      {
        status = Scanf.sscanf status "HTTP/1.1 %d" Fun.id;
        headers =
          List.map
            (fun line ->
              let colon = String.index line ':' in
              ( String.lowercase_ascii (String.sub line 0 colon),
                String.trim (String.sub line (colon + 1) (String.length line - colon - 1)) ))
            headers;
        body;
      }
  | [] -> Alcotest.fail "no status"

let header name answer = List.assoc_opt name answer.headers

(* Files that the server serves, and one beside them. *)
let make_root root =
  Unix.mkdir root 0o755;
  Unix.mkdir (Filename.concat root "sub") 0o755;
  List.iter
    (fun (name, contents) -> write (Filename.concat root name) contents)
    [ ("data.txt", data); ("empty", ""); ("a b", "space"); ("sub/index.html", "<p>index") ];
  write (in_directory "secret") "secret"

(* Requests with the status, and the body unless it does not matter. *)
let check_requests get etag modified =
  let part first length = Some (String.sub data first length) and all = Some data in
  let size = String.length data in
  let range text = [ ("range", text) ] in
  let none_match tag = ("if-none-match", tag) and since date = ("if-modified-since", date) in
  let if_range value = [ ("if-range", value); ("range", "bytes=0-1") ] in
  List.iter
    (fun (path, headers, status, body) ->
      let answer = get ~headers path in
      let name = String.concat " " (path :: List.map snd headers) in
      check int name status answer.status;
      Option.iter (fun body -> check bool (name ^ ": body") true (answer.body = body)) body)
    ([
       ("/data.txt", [], 200, all);
       ("/data.txt", range "bytes=0-0", 206, part 0 1);
       ("/data.txt", range "bytes=100-299", 206, part 100 200);
       ("/data.txt", range "bytes=999990-", 206, part 999_990 10);
       ("/data.txt", range "bytes=-7", 206, part (size - 7) 7);
       ("/data.txt", range "bytes=-9999999", 206, all);
       ("/data.txt", range "bytes=999000-99999999", 206, part 999_000 1000);
       ("/data.txt", range "bytes=65530-200000", 206, part 65_530 134_471);
       ("/data.txt", range "bytes=1000000-", 416, None);
       ("/data.txt", range "bytes=99999999999999999999-", 416, None);
       ("/data.txt", range "bytes=-0", 416, None);
       ("/empty", range "bytes=0-", 416, None);
       ("/data.txt", [ none_match etag ], 304, Some "");
       ("/data.txt", [ none_match ("\"x\", " ^ etag) ], 304, Some "");
       ("/data.txt", [ none_match "\"x\"" ], 200, all);
       ("/data.txt", [ since modified ], 304, Some "");
       ("/data.txt", [ since "Sun, 06 Nov 1994 08:49:37 GMT" ], 200, all);
       ("/data.txt", [ since "yesterday" ], 200, all);
       ("/data.txt", [ none_match "\"x\""; since modified ], 200, all);
       ("/data.txt", if_range etag, 206, part 0 2);
       ("/data.txt", if_range modified, 206, part 0 2);
       ("/data.txt", if_range "\"x\"", 200, all);
       ("/sub/", [], 200, Some "<p>index");
       ("/a%20b", [], 200, Some "space");
       ("/empty", [], 200, Some "");
       ("/missing", [], 404, None);
       ("/empty/x", [], 404, None);
       ("/", [], 404, None);
       ("/a%00b", [], 403, None);
     ]
    @ List.map
        (fun text -> ("/data.txt", range text, 200, all))
        [ "bytes=5-1"; "bytes=0-1,5-6"; "lines=1-2"; "bytes=x-y"; "bytes="; "bytes=0x10-" ])

let static_server () =
  let root = in_directory "root" in
  make_root root;
  let size = string_of_int (String.length data) in
  let pid, port, out, channel =
    start (executable "static_server") [ root; "0" ] ~on_stderr:false
  in
  let get = request port in
  let headers name answer expected =
    List.iter
      (fun (key, value) -> check Alcotest.(option string) name (Some value) (header key answer))
      expected
  in
  let whole = get "/data.txt" in
  headers "whole" whole
    [
      ("content-length", size); ("content-type", "text/plain; charset=utf-8");
      ("accept-ranges", "bytes");
    ];
  check_requests
    (fun ~headers path -> request port ~headers path)
    (Option.get (header "etag" whole))
    (Option.get (header "last-modified" whole));
  let part = get ~headers:[ ("range", "bytes=100-299") ] "/data.txt" in
  headers "a part" part [ ("content-range", "bytes 100-299/" ^ size) ];
  let none = get ~headers:[ ("range", "bytes=1000000-") ] "/data.txt" in
  headers "no part" none [ ("content-range", "bytes */" ^ size) ];
  List.iter
    (fun (path, range, status) ->
      let head = get ~meth:"HEAD" ~headers:[ ("range", range) ] path in
      check int "HEAD" status head.status;
      check string "HEAD: no body" "" head.body;
      if status = 200 then headers "HEAD" head [ ("content-length", size) ])
    [ ("/data.txt", "", 200); ("/data.txt", "bytes=0-1", 200); ("/missing", "", 404) ];
  List.iter
    (fun path ->
      let answer = get path in
      check bool (path ^ " is outside") true
        ((answer.status = 403 || answer.status = 404) && answer.body <> "secret"))
    [ "/../secret"; "/%2e%2e/secret"; "/sub/../../secret"; "/sub/..%2f..%2fsecret" ];
  let post = get ~meth:"POST" ~headers:[ ("content-length", "0") ] "/data.txt" in
  check int "POST" 405 post.status;

  (* Clients that go away in the middle of a file harm no other and leave no file open. *)
  let big = Filename.concat root "big" in
  write big "";
  Unix.truncate big 100_000_000;
  let open_files () =
    let directory = Printf.sprintf "/proc/%d/fd" pid in
    let is_big name =
      match Unix.readlink (Filename.concat directory name) with
      | target -> target = big
      | exception Unix.Unix_error _ -> false
    in
    List.length (List.filter is_big (Array.to_list (Sys.readdir directory)))
  in
  for _ = 1 to 20 do
    let socket = connect port in
    send socket "GET /big HTTP/1.1\r\nhost: localhost\r\n\r\n" 0;
    check bool "a part" true (Unix.read socket (Bytes.create 1000) 0 1000 > 0);
    Unix.close socket
  done;
  check bool "the server goes on" true ((get "/data.txt").body = data);
  let rec until_closed tries =
    if tries > 0 && open_files () > 0 then begin
      Unix.sleepf 0.01;
      until_closed (tries - 1)
    end
  in
  until_closed 500;
  check int "open files" 0 (open_files ());
  Unix.kill pid Sys.sigterm;
  ignore (wait pid);
  close_in out;
  close_in channel

let () =
  Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
  let test name f = Alcotest.test_case name `Quick f in
  Alcotest.run "examples"
    [
      ("count", [ test "file" count_file; test "tcp" count_tcp ]);
      ("grep", [ test "as grep" grep ]);
      ("static_server", [ test "requests" static_server ]);
    ]
