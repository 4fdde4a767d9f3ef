let ( let* ) = Lwt.bind

(* The seconds for which this thread has been blocked so far: it neither ran nor waited for a
   processor. (Some kernels count no such times.) *)
let blocked () =
  let ran =
    match String.split_on_char ' ' (Way.read_file "/proc/thread-self/schedstat") with
    | running :: waiting :: _ -> (float_of_string running +. float_of_string waiting) /. 1e9
    | _ | (exception Unix.Unix_error _) -> 0.
  in
  Unix.gettimeofday () -. ran

let longest f =
  let longest = ref 0. and ended = ref false in
  let rec tick last =
    if !ended then Lwt.return_unit
    else
      let* () = Lwt_unix.sleep 0.01 in
      let now = blocked () in
      longest := Float.max !longest (now -. last);
      tick now
  in
  let ticking = tick (blocked ()) in
  let* () = f () in
  ended := true;
  let* () = ticking in
  Lwt.return !longest
