type t = { memory : int; offset : int; max_request : int }

external unsafe_get : Unix.file_descr -> int array -> int = "ringway_ml_direct_io"
external error_of_errno : int -> Unix.error = "ringway_ml_error"

let get fd =
  let numbers = [| 0; 0; 0 |] in
  let result = unsafe_get fd numbers in
  if result < 0 then raise (Unix.Unix_error (error_of_errno (-result), "direct_io", ""));
  { memory = numbers.(0); offset = numbers.(1); max_request = numbers.(2) }
