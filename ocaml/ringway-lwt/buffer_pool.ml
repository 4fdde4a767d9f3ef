open Ringway

(* Class i has buffers of [smallest lsl i] bytes. *)
let smallest = 4096
let classes = 9 (* up to 1 MiB *)
let limit = 16 * 1024 * 1024

(* unused.(i) are unused_count.(i) buffers of class i. Stacks that are never grown, because giving
   and taking must not allocate in between: finalisers do both, too. *)
let unused = Array.init classes (fun i -> Array.make (limit / (smallest lsl i)) Buffer.empty)
let unused_count = Array.make classes 0
let unused_bytes = ref 0

let rec class_of n i = if i = classes || n <= smallest lsl i then i else class_of n (i + 1)

let take n =
  let i = class_of n 0 in
  if i = classes then Buffer.create_aligned n
  else
    match unused_count.(i) with
    | 0 -> Buffer.create_aligned (smallest lsl i)
    | count ->
        let buffer = unused.(i).(count - 1) in
        unused.(i).(count - 1) <- Buffer.empty;
        unused_count.(i) <- count - 1;
        unused_bytes := !unused_bytes - Buffer.length buffer;
        buffer

let give buffer =
  let length = Buffer.length buffer in
  let i = class_of length 0 in
  if i < classes && !unused_bytes + length <= limit then begin
    unused.(i).(unused_count.(i)) <- buffer;
    unused_count.(i) <- unused_count.(i) + 1;
    unused_bytes := !unused_bytes + length
  end
