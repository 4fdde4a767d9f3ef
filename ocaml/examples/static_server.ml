(* Serves the files of a directory over HTTP with cohttp: GET and HEAD, one range of bytes, and
   conditional requests. It lists no directories and compresses nothing.

     static_server DIRECTORY PORT     port 0: any *)

open Lwt.Infix
open Cohttp
module Io = Ringway_lwt.Io
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
    if String.length digits <= 18 && String.for_all (fun c -> c >= '0' && c <= '9') digits then
      int_of_string_opt digits
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

(* A range is of the file that the client knows, or the whole file is sent. *)
let range headers ~etag ~modified ~size =
  let same =
    match Header.get headers "if-range" with
    | None -> true
    | Some validator -> validator = etag || validator = http_date modified
  in
  match Header.get headers "range" with
  | Some range when same -> parse_range size range
  | Some _ | None -> Whole

(* ---- Answers ---- *)

(* Sends [length] bytes from [first] on, a chunk at a time. The channel is closed at the end, and
   when the client goes away. *)
let body path ~first ~length =
  Io.open_file ~buffer:(Lwt_bytes.create chunk_size) ~mode:Input path >>= fun channel ->
  Gc.finalise (fun channel -> ignore (Io.close channel)) channel;
  Io.set_position channel (Int64.of_int first) >|= fun () ->
  let left = ref length in
  Lwt_stream.from (fun () ->
      if !left = 0 then Io.close channel >|= fun () -> None
      else
        Io.read ~count:(min !left chunk_size) channel >>= function
        | "" ->
            (* The file has become shorter than what the header has announced. *)
            Io.close channel >>= fun () -> Lwt.fail End_of_file
        | data ->
            left := !left - String.length data;
            Lwt.return_some data)

let plain ?(headers = Header.init ()) status =
  let body = Code.string_of_status status ^ "\n" in
  let headers = Header.add headers "content-type" "text/plain" in
  Server.respond_string ~headers ~status ~body ()

let serve_file request path (stats : Unix.LargeFile.stats) =
  let size = Int64.to_int stats.st_size in
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
  let send status headers ~first ~length =
    let headers = Header.add headers "content-length" (string_of_int length) in
    (if Request.meth request = `HEAD then Lwt.return Cohttp_lwt.Body.empty
     else body path ~first ~length >|= Cohttp_lwt.Body.of_stream)
    >>= fun body -> Server.respond ~headers ~status ~body ()
  in
  if not_modified request_headers ~etag ~modified then
    Server.respond ~headers ~status:`Not_modified ~body:Cohttp_lwt.Body.empty ()
  else
    match range request_headers ~etag ~modified ~size with
    | Whole -> send `OK headers ~first:0 ~length:size
    | Part (first, last) ->
        let headers =
          Header.add headers "content-range" (Printf.sprintf "bytes %d-%d/%d" first last size)
        in
        send `Partial_content headers ~first ~length:(last - first + 1)
    | Unsatisfiable ->
        plain `Requested_range_not_satisfiable
          ~headers:(Header.init_with "content-range" (Printf.sprintf "bytes */%d" size))

let rec answer request path =
  Lwt_unix.LargeFile.stat path >>= fun stats ->
  match stats.st_kind with
  | S_REG -> serve_file request path stats
  | S_DIR -> answer request (Filename.concat path "index.html")
  | _ -> plain `Forbidden

let callback directory _connection request _body =
  match Request.meth request with
  | `GET | `HEAD -> (
      match local_path directory (Uri.path (Request.uri request)) with
      | None -> plain `Forbidden
      | Some path ->
          Lwt.catch
            (fun () -> answer request path)
            (function
              | Unix.Unix_error ((ENOENT | ENOTDIR | ENAMETOOLONG), _, _) -> plain `Not_found
              | Unix.Unix_error ((EACCES | ELOOP), _, _) -> plain `Forbidden
              | exn -> Lwt.fail exn))
  | _ -> plain `Method_not_allowed ~headers:(Header.init_with "allow" "GET, HEAD")

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
            (Server.make ~callback:(callback directory) ()) )
  | _ ->
      prerr_endline "usage: static_server DIRECTORY PORT";
      exit 2
