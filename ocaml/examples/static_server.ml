(* Serves the files of a directory over HTTP with cohttp: GET and HEAD, one range of bytes, and
   conditional requests. It lists no directories, compresses nothing, and has no time limit for slow
   clients.

     static_server DIRECTORY PORT     port 0: any *)

open Lwt.Infix
open Cohttp
module File = Ringway_lwt.File
module Server = Cohttp_lwt_unix.Server

let chunk_size = 64 * 1024

(* ---- Dates of HTTP ---- *)

let months =
  [| "Jan"; "Feb"; "Mar"; "Apr"; "May"; "Jun"; "Jul"; "Aug"; "Sep"; "Oct"; "Nov"; "Dec" |]

let days = [| "Sun"; "Mon"; "Tue"; "Wed"; "Thu"; "Fri"; "Sat" |]

let http_date time =
  let tm = Unix.gmtime time in
  Printf.sprintf "%s, %02d %s %04d %02d:%02d:%02d GMT" days.(tm.tm_wday) tm.tm_mday
    months.(tm.tm_mon) (tm.tm_year + 1900) tm.tm_hour tm.tm_min tm.tm_sec

(* Days since 1970 of a date in the Gregorian calendar. *)
let days_since_epoch year month day =
  let year = if month <= 2 then year - 1 else year in
  let month = (month + 9) mod 12 in
  (365 * year) + (year / 4) - (year / 100) + (year / 400) + (((153 * month) + 2) / 5) + day - 719469

let parse_http_date string =
  let seconds _ day name year hour minute second =
    let rec month i =
      if i = 12 then None else if months.(i) = name then Some (i + 1) else month (i + 1)
    in
    Option.map
      (fun month ->
        float_of_int
          ((86400 * days_since_epoch year month day) + (3600 * hour) + (60 * minute) + second))
      (month 0)
  in
  try Scanf.sscanf string "%3s, %d %3s %d %d:%d:%d GMT%!" seconds
  with Scanf.Scan_failure _ | Failure _ | End_of_file -> None

(* ---- Requests ---- *)

type range = Whole | Part of int * int  (** first and last byte *) | Unsatisfiable

(* Several ranges, and what is no range of bytes, are answered with the whole file, as RFC 9110
   permits. *)
let parse_range size header =
  let number digits =
    if digits <> "" && String.for_all (fun c -> c >= '0' && c <= '9') digits then
      Some (Option.value (int_of_string_opt digits) ~default:max_int)
    else None
  in
  match String.index_opt header '=' with
  | Some i when String.sub header 0 i = "bytes" -> (
      let spec = String.sub header (i + 1) (String.length header - i - 1) in
      match String.split_on_char '-' (String.trim spec) with
      | [ ""; last ] -> (
          match number last with
          | Some 0 -> Unsatisfiable
          | Some n -> if size = 0 then Unsatisfiable else Part (max 0 (size - n), size - 1)
          | None -> Whole)
      | [ first; last ] -> (
          match (number first, if last = "" then Some max_int else number last) with
          | Some first, Some last when first <= last ->
              if first >= size then Unsatisfiable else Part (first, min last (size - 1))
          | _ -> Whole)
      | _ -> Whole)
  | Some _ | None -> Whole

let content_types =
  [
    (".html", "text/html; charset=utf-8"); (".css", "text/css"); (".js", "text/javascript");
    (".json", "application/json"); (".txt", "text/plain; charset=utf-8"); (".svg", "image/svg+xml");
    (".png", "image/png"); (".jpg", "image/jpeg"); (".pdf", "application/pdf");
  ]

let content_type path =
  match List.assoc_opt (String.lowercase_ascii (Filename.extension path)) content_types with
  | Some content_type -> content_type
  | None -> "application/octet-stream"

(* The path below the directory, if it stays there. *)
let local_path directory uri_path =
  let parts = String.split_on_char '/' (Uri.pct_decode uri_path) in
  if List.exists (fun part -> part = ".." || String.contains part '\000') parts then None
  else Some (List.fold_left Filename.concat directory (List.filter (fun part -> part <> "") parts))

let has_tag header etag =
  String.split_on_char ',' header
  |> List.exists (fun tag ->
         let tag = String.trim tag in
         tag = "*" || tag = etag || tag = "W/" ^ etag)

let not_modified headers ~etag ~modified =
  match Header.get headers "if-none-match" with
  | Some tags -> has_tag tags etag
  | None -> (
      match Option.bind (Header.get headers "if-modified-since") parse_http_date with
      | Some date -> Float.of_int (Float.to_int modified) <= date
      | None -> false)

(* A range is of the file that the client knows, or the whole file is sent. HEAD has no ranges. *)
let range meth headers ~etag ~modified ~size =
  let same =
    match Header.get headers "if-range" with
    | None -> true
    | Some validator -> validator = etag || validator = http_date modified
  in
  match Header.get headers "range" with
  | Some range when same && meth = `GET -> parse_range size range
  | Some _ | None -> Whole

(* ---- Files ---- *)

(* The file that is sent on each connection, which serves one request at a time. *)
let files : (string, File.t) Hashtbl.t = Hashtbl.create 64

let open_file connection path =
  File.openfile path [ O_RDONLY; O_NONBLOCK; O_CLOEXEC ] 0 >|= fun file ->
  Hashtbl.replace files connection file;
  file

let close_file connection =
  match Hashtbl.find_opt files connection with
  | None -> Lwt.return_unit
  | Some file ->
      Hashtbl.remove files connection;
      File.close file

(* [length] bytes from [first] on, a chunk at a time. *)
let contents connection file ~first ~length =
  let pos = ref first and stop = first + length in
  Lwt_stream.from (fun () ->
      if !pos = stop || not (Hashtbl.mem files connection) then
        close_file connection >|= fun () -> None
      else
        let chunk = Bytes.create (min (stop - !pos) chunk_size) in
        File.pread_bytes file chunk ~pos:!pos 0 (Bytes.length chunk) >>= function
        | 0 ->
            (* The file has become shorter than what the header has announced. *)
            close_file connection >>= fun () -> Lwt.fail End_of_file
        | n ->
            pos := !pos + n;
            Lwt.return_some (Bytes.sub_string chunk 0 n))

(* ---- Answers ---- *)

type body = Text of string | Contents of { file : File.t; first : int; length : int }
type answer = { status : Code.status_code; headers : Header.t; body : body }

let plain ?(headers = Header.init ()) status =
  let headers = Header.add headers "content-type" "text/plain" in
  { status; headers; body = Text (Code.string_of_status status ^ "\n") }

let answer_with request file path (stats : Unix.stats) =
  let size = stats.st_size in
  let modified = stats.st_mtime in
  let etag = Printf.sprintf "\"%x-%x-%Lx\"" stats.st_ino size (Int64.bits_of_float modified) in
  let request_headers = Request.headers request in
  let headers =
    Header.of_list
      [
        ("accept-ranges", "bytes"); ("etag", etag); ("last-modified", http_date modified);
        ("content-type", content_type path);
      ]
  in
  if not_modified request_headers ~etag ~modified then
    { status = `Not_modified; headers; body = Text "" }
  else
    match range (Request.meth request) request_headers ~etag ~modified ~size with
    | Whole -> { status = `OK; headers; body = Contents { file; first = 0; length = size } }
    | Part (first, last) ->
        let content_range = Printf.sprintf "bytes %d-%d/%d" first last size in
        {
          status = `Partial_content;
          headers = Header.add headers "content-range" content_range;
          body = Contents { file; first; length = last - first + 1 };
        }
    | Unsatisfiable ->
        plain `Requested_range_not_satisfiable
          ~headers:(Header.init_with "content-range" (Printf.sprintf "bytes */%d" size))

(* The size is that of the file that is open, which another one may replace meanwhile. *)
let rec answer connection request path =
  open_file connection path >>= fun file ->
  File.stat file >>= fun stats ->
  match stats.st_kind with
  | S_REG -> Lwt.return (answer_with request file path stats)
  | S_DIR ->
      close_file connection >>= fun () ->
      answer connection request (Filename.concat path "index.html")
  | _ -> Lwt.return (plain `Forbidden)

let answer_or_error connection request path =
  Lwt.catch
    (fun () -> answer connection request path)
    (function
      | Unix.Unix_error ((ENOENT | ENOTDIR | ENAMETOOLONG), _, _) ->
          Lwt.return (plain `Not_found)
      | Unix.Unix_error ((EACCES | ELOOP | ENXIO), _, _) -> Lwt.return (plain `Forbidden)
      | exn -> close_file connection >>= fun () -> Lwt.fail exn)

(* cohttp sends the body of an answer to HEAD, too, so that must be empty. *)
let respond connection meth { status; headers; body } =
  let length = match body with Text text -> String.length text | Contents { length; _ } -> length in
  let headers =
    if status = `Not_modified then headers
    else Header.add headers "content-length" (string_of_int length)
  in
  match body with
  | Contents { file; first; length } when meth = `GET ->
      let stream = contents connection file ~first ~length in
      Server.respond ~headers ~status ~body:(Cohttp_lwt.Body.of_stream stream) ()
  | Contents _ | Text _ ->
      close_file connection >>= fun () ->
      let text = match body with Text text when meth <> `HEAD -> text | _ -> "" in
      Server.respond ~headers ~status ~body:(Cohttp_lwt.Body.of_string text) ()

let callback directory (_, connection) request _body =
  let connection = Connection.to_string connection in
  let meth = Request.meth request in
  (match meth with
  | `GET | `HEAD -> (
      match local_path directory (Uri.path (Request.uri request)) with
      | None -> Lwt.return (plain `Forbidden)
      | Some path -> answer_or_error connection request path)
  | _ ->
      Lwt.return
        (plain `Method_not_allowed ~headers:(Header.init_with "allow" "GET, HEAD")))
  >>= respond connection meth

(* Also of a client that went away in the middle of a file. *)
let conn_closed (_, connection) =
  Lwt.async (fun () -> close_file (Connection.to_string connection))

let listen port =
  let socket = Lwt_unix.socket ~cloexec:true PF_INET SOCK_STREAM 0 in
  Lwt_unix.setsockopt socket SO_REUSEADDR true;
  Lwt_unix.bind socket (ADDR_INET (Unix.inet_addr_loopback, port)) >|= fun () ->
  Lwt_unix.listen socket 1024;
  (match Lwt_unix.getsockname socket with
  | ADDR_INET (_, port) -> Printf.printf "listening on port %d\n%!" port
  | ADDR_UNIX _ -> ());
  socket

let () =
  Sys.set_signal Sys.sigpipe Sys.Signal_ignore;
  (match Ringway_lwt.Engine.install () with
  | Ok () -> ()
  | Error reason -> Printf.eprintf "without io_uring: %s\n%!" reason);
  match Array.to_list Sys.argv with
  | [ _; directory; port ] when int_of_string_opt port <> None ->
      Lwt_main.run
        ( listen (int_of_string port) >>= fun socket ->
          Server.create
            ~mode:(`TCP (`Socket socket))
            ~on_exn:(fun exn -> Printf.eprintf "error: %s\n%!" (Printexc.to_string exn))
            (Server.make ~conn_closed ~callback:(callback directory) ()) )
  | _ ->
      prerr_endline "usage: static_server DIRECTORY PORT";
      exit 2
