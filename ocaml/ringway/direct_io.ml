type t = {
  memory : int;
  offset : int;
  max_request : int;
  untorn_min : int;
  untorn_max : int;
  untorn_max_opt : int;
  untorn_max_segments : int;
}

external unsafe_get : Unix.file_descr -> int array -> int = "ringway_ml_direct_io"
external error_of_errno : int -> Unix.error = "ringway_ml_error"

let get fd =
  let numbers = Array.make 7 0 in
  let result = unsafe_get fd numbers in
  if result < 0 then raise (Unix.Unix_error (error_of_errno (-result), "direct_io", ""));
  {
    memory = numbers.(0);
    offset = numbers.(1);
    max_request = numbers.(2);
    untorn_min = numbers.(3);
    untorn_max = numbers.(4);
    untorn_max_opt = numbers.(5);
    untorn_max_segments = numbers.(6);
  }
