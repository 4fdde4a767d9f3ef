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

let static_server () =
  let root = in_directory "root" in
  Unix.mkdir root 0o755;
  Unix.mkdir (Filename.concat root "sub") 0o755;
  write (Filename.concat root "data.txt") data;
  write (Filename.concat root "empty") "";
  write (Filename.concat root "a b") "space";
  write (Filename.concat root "sub/index.html") "<p>index";
  write (in_directory "secret") "secret";
  let size = String.length data in
  let pid, port, out, channel =
    start (executable "static_server") [ root; "0" ] ~on_stderr:false
  in
  let get = request port in
  let option = Alcotest.(option string) in
  let status name expected answer = check int name expected answer.status in

  let whole = get "/data.txt" in
  status "whole" 200 whole;
  check bool "the data" true (whole.body = data);
  check option "length" (Some (string_of_int size)) (header "content-length" whole);
  check option "type" (Some "text/plain; charset=utf-8") (header "content-type" whole);
  check option "ranges" (Some "bytes") (header "accept-ranges" whole);

  let head = get ~meth:"HEAD" "/data.txt" in
  status "HEAD" 200 head;
  check string "HEAD: no body" "" head.body;
  check option "HEAD: length" (Some (string_of_int size)) (header "content-length" head);

  let head = get ~meth:"HEAD" ~headers:[ ("range", "bytes=0-1") ] "/data.txt" in
  status "HEAD: no range" 200 head;
  let head = get ~meth:"HEAD" "/missing" in
  status "HEAD: missing" 404 head;
  check string "HEAD: missing: no body" "" head.body;

  let part range first length =
    let answer = get ~headers:[ ("range", range) ] "/data.txt" in
    status range 206 answer;
    check bool (range ^ ": data") true (answer.body = String.sub data first length);
    check option (range ^ ": content-range")
      (Some (Printf.sprintf "bytes %d-%d/%d" first (first + length - 1) size))
      (header "content-range" answer)
  in
  part "bytes=0-0" 0 1;
  part "bytes=100-299" 100 200;
  part "bytes=999990-" 999_990 10;
  part "bytes=-7" (size - 7) 7;
  part "bytes=-9999999" 0 size;
  part "bytes=999000-99999999" 999_000 1000;
  part "bytes=65530-200000" 65_530 134_471;

  let unsatisfiable range path size =
    let answer = get ~headers:[ ("range", range) ] path in
    status range 416 answer;
    check option (range ^ ": content-range")
      (Some (Printf.sprintf "bytes */%d" size))
      (header "content-range" answer)
  in
  unsatisfiable "bytes=1000000-" "/data.txt" size;
  unsatisfiable "bytes=99999999999999999999-" "/data.txt" size;
  unsatisfiable "bytes=-0" "/data.txt" size;
  unsatisfiable "bytes=0-" "/empty" 0;
  List.iter
    (fun range ->
      let answer = get ~headers:[ ("range", range) ] "/data.txt" in
      status range 200 answer;
      check bool (range ^ ": data") true (answer.body = data))
    [ "bytes=5-1"; "bytes=0-1,5-6"; "lines=1-2"; "bytes=x-y"; "bytes="; "bytes=0x10-" ];

  let etag = Option.get (header "etag" whole) in
  let modified = Option.get (header "last-modified" whole) in
  let conditional name expected headers =
    let answer = get ~headers "/data.txt" in
    status name expected answer;
    if expected = 304 then check string (name ^ ": no body") "" answer.body
  in
  conditional "same tag" 304 [ ("if-none-match", etag) ];
  conditional "one of the tags" 304 [ ("if-none-match", "\"x\", " ^ etag) ];
  conditional "other tag" 200 [ ("if-none-match", "\"x\"") ];
  conditional "not modified" 304 [ ("if-modified-since", modified) ];
  conditional "modified" 200 [ ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT") ];
  conditional "no date" 200 [ ("if-modified-since", "yesterday") ];
  conditional "the tag decides" 200
    [ ("if-none-match", "\"x\""); ("if-modified-since", modified) ];
  conditional "if-range, same" 206 [ ("if-range", etag); ("range", "bytes=0-1") ];
  conditional "if-range, date" 206 [ ("if-range", modified); ("range", "bytes=0-1") ];
  conditional "if-range, other" 200 [ ("if-range", "\"x\""); ("range", "bytes=0-1") ];

  check string "index" "<p>index" (get "/sub/").body;
  check string "escaped path" "space" (get "/a%20b").body;
  let empty = get "/empty" in
  status "empty" 200 empty;
  check string "empty: body" "" empty.body;
  status "missing" 404 (get "/missing");
  status "a file as directory" 404 (get "/empty/x");
  status "no index" 404 (get "/");
  List.iter
    (fun path ->
      let answer = get path in
      check bool (path ^ " is outside") true
        ((answer.status = 403 || answer.status = 404) && answer.body <> "secret"))
    [ "/../secret"; "/%2e%2e/secret"; "/sub/../../secret"; "/sub/..%2f..%2fsecret" ];
  status "NUL" 403 (get "/a%00b");
  status "POST" 405 (get ~meth:"POST" ~headers:[ ("content-length", "0") ] "/data.txt");

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
