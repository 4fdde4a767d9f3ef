exception Unavailable of string

type t = {
  name : string;
  about : string;
  environment : (string * string) list;
  prepare : unit -> unit;
  run : Row.t -> (Job.t -> Sample.t) option;
}

let plain name about run = { name; about; environment = []; prepare = ignore; run }

(* The rows with sockets. *)
let sockets run = function
  | (Row.Tcp _ | Echo _) as row -> run row
  | Checksum _ | Reads _ -> None

let engine () =
  match Ringway_lwt.Engine.install () with Ok () -> () | Error reason -> raise (Unavailable reason)

let on_engine name about run = { (plain name about run) with prepare = engine }

let select () = Lwt_engine.set (new Lwt_engine.select)

let on_backend backend =
  {
    name = "File/" ^ backend;
    about = "File on Lwt's own engine, with the backend " ^ backend;
    environment = [ ("RINGWAY_BACKEND", backend) ];
    (* The tables of the dispatcher belong to the set-up. *)
    prepare =
      (fun () ->
        match Ringway_lwt.Dispatcher.current () with
        | _ -> ()
        | exception Ringway.Queue.Error { message; _ } -> raise (Unavailable message));
    run = With_ringway.file;
  }

let all =
  [
    plain "Unix" "blocking system calls, one at a time" With_unix.run;
    plain "Lwt_unix" "Lwt on its own engine (libev): threads for files" With_lwt.lwt_unix;
    {
      name = "Lwt_unix/select";
      about = "the same on Lwt's engine on select";
      environment = [];
      prepare = select;
      run = sockets With_lwt.lwt_unix;
    };
    plain "Lwt_io" "Lwt's channels, with a buffer as large as the reads" With_lwt.lwt_io;
    on_engine "Lwt_unix/ringway" "the same on the engine of ringway" (sockets With_lwt.lwt_unix);
    on_engine "Lwt_io/ringway" "the same on the engine of ringway" (sockets With_lwt.lwt_io);
    on_engine "File" "Ringway_lwt.File with Bigarrays, on the engine of ringway" With_ringway.file;
    on_engine "File/bytes" "the same with Bytes" With_ringway.bytes;
    on_backend "uring";
    on_backend "kaio";
    on_backend "threads";
    on_engine "Ringway_lwt.Unix" "Lwt_unix's functions for files, on the engine of ringway"
      (With_lwt.like_lwt_unix (module Ringway_lwt.Unix));
    on_engine "Reader" "Ringway_lwt.Reader and Writer, on the engine of ringway"
      With_ringway.reader;
    on_engine "Io" "Ringway_lwt.Io, on the engine of ringway" With_ringway.io;
    plain "Eio" "Eio on eio_linux" With_eio.run;
  ]

let find name = List.find_opt (fun t -> t.name = name) all
let reference = "Lwt_unix"
