external refuse : bool -> bool -> unit = "ringway_test_refuse"
external set_descriptors : int -> unit = "ringway_test_set_descriptors"

external fail_enters : int -> bool -> unit = "ringway_test_fail_enters"
external no_timers : bool -> unit = "ringway_test_no_timers"
external failing_enters : unit -> int = "ringway_test_failing_enters"

let fail_enters count ~try_again = fail_enters count try_again

let refuse ~io_uring ~aio = refuse io_uring aio

let rec wait child =
  match Unix.waitpid [] child with
  | _, status -> status
  | exception Unix.Unix_error (EINTR, _, _) -> wait child

let in_child ?(fork = Lwt_unix.fork) f =
  flush_all ();
  match fork () with
  | 0 ->
      let code =
        match
          ignore (Unix.alarm 60);
          f ()
        with
        | () -> 0
        | exception exn ->
            prerr_endline ("in the child: " ^ Printexc.to_string exn);
            1
      in
      flush_all ();
      Unix._exit code
  | child -> (
      match wait child with
      | WEXITED 0 -> ()
      | WEXITED n -> failwith (Printf.sprintf "the child exited with %d" n)
      | WSIGNALED n | WSTOPPED n -> failwith (Printf.sprintf "the child ended by signal %d" n))
