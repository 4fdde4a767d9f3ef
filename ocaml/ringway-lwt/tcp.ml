open Lwt.Infix

let set_no_delay fd =
  (* Not an option of a Unix domain socket. *)
  try Lwt_unix.setsockopt fd TCP_NODELAY true with Unix.Unix_error _ -> ()

let check name = function
  | Some n when n <= 0 -> invalid_arg ("Ringway_lwt.Tcp: " ^ name ^ " is not positive")
  | Some _ | None -> ()

let of_socket ?buffer_size fd =
  check "buffer_size" buffer_size;
  let users = ref 2 in
  let release () =
    decr users;
    if !users = 0 then Lwt_unix.close fd else Lwt.return_unit
  in
  let close_writer () =
    (* The peer may have gone. *)
    (try Lwt_unix.shutdown fd SHUTDOWN_SEND
     with Unix.Unix_error ((ENOTCONN | ECONNRESET | EPIPE), _, _) -> ());
    release ()
  in
  ( Reader.of_connection ?buffer_size ~close:release fd,
    Writer.of_connection ?buffer_size ~close:close_writer fd )

let connect ?buffer_size address =
  check "buffer_size" buffer_size;
  let fd = Lwt_unix.socket ~cloexec:true (Unix.domain_of_sockaddr address) SOCK_STREAM 0 in
  Lwt.try_bind
    (fun () -> Lwt_unix.connect fd address)
    (fun () ->
      set_no_delay fd;
      Lwt.return (of_socket ?buffer_size fd))
    (fun exn -> Lwt_unix.close fd >>= fun () -> Lwt.fail exn)

(* Runs [f], then closes both: after a failure without the bytes that were not flushed. *)
let using reader writer f =
  Lwt.try_bind f
    (fun result ->
      Lwt.finalize (fun () -> Writer.close writer) (fun () -> Reader.close reader) >|= fun () ->
      result)
    (fun exn ->
      Lwt.finalize (fun () -> Writer.abort writer) (fun () -> Reader.close reader) >>= fun () ->
      Lwt.fail exn)

let with_connection ?buffer_size address f =
  connect ?buffer_size address >>= fun (reader, writer) ->
  using reader writer (fun () -> f reader writer)

type server = {
  socket : Lwt_unix.file_descr;
  address : Unix.sockaddr;
  mutable connections : int;
  (* Signalled when a connection ends. *)
  ended : unit Lwt_condition.t;
  mutable accepting : unit Lwt.t;
  mutable closed : unit Lwt.t option;
}

let address t = t.address
let connections t = t.connections
let call hook = try hook () with exn -> !Lwt.async_exception_hook exn

let handle t ~buffer_size ~on_handler_error handler fd peer =
  t.connections <- t.connections + 1;
  set_no_delay fd;
  let reader, writer = of_socket ?buffer_size fd in
  let ended () =
    t.connections <- t.connections - 1;
    Lwt_condition.broadcast t.ended ()
  in
  Lwt.on_any
    (using reader writer (fun () -> handler peer reader writer))
    ended
    (fun exn ->
      ended ();
      call (fun () -> on_handler_error peer exn))

let is_closed t = t.closed <> None

let rec accept t ~max_connections ~on_accept_error handle =
  let again () = accept t ~max_connections ~on_accept_error handle in
  let room = max_connections - t.connections in
  if is_closed t then Lwt.return_unit
  else if room <= 0 then Lwt_condition.wait t.ended >>= again
  else
    Lwt_unix.accept_n ~cloexec:true t.socket (min room 64) >>= fun (accepted, error) ->
    List.iter (fun (fd, peer) -> handle fd peer) accepted;
    match error with
    | None ->
        (* A socket at which many connections arrive must not keep the loop from the others. *)
        Lwt.pause () >>= again
    | Some _ when is_closed t -> Lwt.return_unit
    | Some exn ->
        call (fun () -> on_accept_error exn);
        (* The connection is still in the backlog, so that accepting at once would fail again. *)
        Lwt.pick [ Lwt_unix.sleep 0.1; Lwt_condition.wait t.ended ] >>= again

let serve ?(backlog = 4096) ?max_connections ?buffer_size ?(on_accept_error = ignore)
    ~on_handler_error address handler =
  check "max_connections" max_connections;
  check "buffer_size" buffer_size;
  let socket = Lwt_unix.socket ~cloexec:true (Unix.domain_of_sockaddr address) SOCK_STREAM 0 in
  Lwt.catch
    (fun () ->
      Lwt_unix.setsockopt socket SO_REUSEADDR true;
      Lwt_unix.bind socket address >|= fun () ->
      Lwt_unix.listen socket backlog;
      let t =
        {
          socket;
          address = Lwt_unix.getsockname socket;
          connections = 0;
          ended = Lwt_condition.create ();
          accepting = Lwt.return_unit;
          closed = None;
        }
      in
      let max_connections = Option.value max_connections ~default:max_int in
      t.accepting <-
        accept t ~max_connections ~on_accept_error
          (handle t ~buffer_size ~on_handler_error handler);
      t)
    (fun exn -> Lwt_unix.close socket >>= fun () -> Lwt.fail exn)

let close t =
  match t.closed with
  | Some closed -> Lwt.protected closed
  | None ->
      let closed, resolver = Lwt.wait () in
      t.closed <- Some closed;
      Lwt.cancel t.accepting;
      Lwt.on_any (Lwt_unix.close t.socket)
        (fun () ->
          Lwt.wakeup_later resolver ();
          Lwt_condition.broadcast t.ended ())
        (Lwt.wakeup_later_exn resolver);
      Lwt.protected closed

let rec wait t =
  if is_closed t && t.connections = 0 then Lwt.return_unit
  else Lwt_condition.wait t.ended >>= fun () -> wait t
