open Ringway

(* Class i has buffers of [smallest lsl i] bytes. *)
let smallest = 4096
let classes = 9 (* up to 1 MiB *)
let limit = 16 * 1024 * 1024
let unused = Array.make classes []
let unused_bytes = ref 0

let rec class_of n i = if i = classes || n <= smallest lsl i then i else class_of n (i + 1)

let take n =
  let i = class_of n 0 in
  if i = classes then Buffer.create_aligned n
  else
    match unused.(i) with
    | [] -> Buffer.create_aligned (smallest lsl i)
    | buffer :: rest ->
        unused.(i) <- rest;
        unused_bytes := !unused_bytes - Buffer.length buffer;
        buffer

let give buffer =
  let length = Buffer.length buffer in
  let i = class_of length 0 in
  if i < classes && !unused_bytes + length <= limit then begin
    unused.(i) <- buffer :: unused.(i);
    unused_bytes := !unused_bytes + length
  end
