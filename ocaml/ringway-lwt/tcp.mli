(** Clients and servers of TCP and Unix domain sockets, with a {!Reader} and a {!Writer} for each
    connection. No name resolution and no TLS. *)

(** {1 Connections} *)

val connect : ?buffer_size:int -> Unix.sockaddr -> (Reader.t * Writer.t) Lwt.t
(** Connects. [buffer_size] is that of the reader and of the writer. [TCP_NODELAY] is set on TCP
    sockets, since the writer gathers small writes.

    [Writer.close] ends the sending direction, so that the peer reads the end of the data; reading
    goes on. The socket is closed when both are closed.

    Fails as [Lwt_unix.connect] does. Cancelling the promise closes the socket.

    @raise Invalid_argument if [buffer_size] is not positive. *)

val with_connection :
  ?buffer_size:int -> Unix.sockaddr -> (Reader.t -> Writer.t -> 'a Lwt.t) -> 'a Lwt.t
(** [with_connection address f] closes both when the promise of [f] is resolved. If [f] fails, the
    bytes that were not flushed are dropped. *)

val of_socket : ?buffer_size:int -> Lwt_unix.file_descr -> Reader.t * Writer.t
(** A reader and a writer of a connected socket, which now belongs to them.

    @raise Invalid_argument as {!connect}. *)

(** {1 Servers} *)

type server

val serve :
  ?backlog:int ->
  ?max_connections:int ->
  ?buffer_size:int ->
  ?on_accept_error:(exn -> unit) ->
  on_handler_error:(Unix.sockaddr -> exn -> unit) ->
  Unix.sockaddr ->
  (Unix.sockaddr -> Reader.t -> Writer.t -> unit Lwt.t) ->
  server Lwt.t
(** [serve ~on_handler_error address handler] listens at [address] and calls
    [handler peer reader writer] for each connection. When the promise of the handler is resolved,
    the connection is flushed and closed. If the handler fails, the bytes that were not flushed are
    dropped, the connection is closed, and [on_handler_error peer exn] is called; so it is if the
    last flush fails. The server goes on.

    - [backlog]: connections that wait for being accepted. Default: 4096, of which the system
      may allow less.
    - [max_connections]: further connections wait in the backlog. Default: no limit.
    - [on_accept_error]: called when accepting fails, for example with [EMFILE] when the process has
      too many descriptors. The server tries again when a connection has been closed, or after 100
      ms. Default: [ignore].

    What a hook raises goes to [Lwt.async_exception_hook]. The promise is fulfilled when the socket
    is listening, and fails as [Lwt_unix.bind] and [Unix.listen] do. [SO_REUSEADDR] is set. The file
    of a Unix domain socket is left to the program.

    @raise Invalid_argument if [max_connections] or [buffer_size] is not positive. *)

val address : server -> Unix.sockaddr
(** The address that it listens at, with the port that the system has chosen for port 0. *)

val connections : server -> int
(** The connections whose handlers have not ended. *)

val close : server -> unit Lwt.t
(** Stops listening. Connections in progress go on until their handlers end; the library does not
    end them. Does nothing the second time. *)

val wait : server -> unit Lwt.t
(** Is fulfilled when the server is closed and its last connection has ended. *)
