type t = (char, Bigarray.int8_unsigned_elt, Bigarray.c_layout) Bigarray.Array1.t

let create n =
  if n < 0 then invalid_arg "Ringway.Buffer.create";
  Bigarray.Array1.create Bigarray.char Bigarray.c_layout n

external misalignment : t -> (int[@untagged]) -> (int[@untagged])
  = "ringway_ml_misalignment_byte" "ringway_ml_misalignment"
  [@@noalloc]

let create_aligned ?(align = 4096) n =
  if n < 0 || align <= 0 || align land (align - 1) <> 0 then
    invalid_arg "Ringway.Buffer.create_aligned";
  let whole = create (n + align - 1) in
  let past = misalignment whole align in
  Bigarray.Array1.sub whole (if past = 0 then 0 else align - past) n

let empty = create 0
let length (buffer : t) = Bigarray.Array1.dim buffer
let sub (buffer : t) off len = Bigarray.Array1.sub buffer off len

external unsafe_to_bytes :
  t -> (int[@untagged]) -> Bytes.t -> (int[@untagged]) -> (int[@untagged]) -> unit
  = "ringway_ml_to_bytes_byte" "ringway_ml_to_bytes"
  [@@noalloc]

external unsafe_from_bytes :
  Bytes.t -> (int[@untagged]) -> t -> (int[@untagged]) -> (int[@untagged]) -> unit
  = "ringway_ml_from_bytes_byte" "ringway_ml_from_bytes"
  [@@noalloc]

external unsafe_blit :
  t -> (int[@untagged]) -> t -> (int[@untagged]) -> (int[@untagged]) -> unit
  = "ringway_ml_blit_byte" "ringway_ml_blit"
  [@@noalloc]

let check name len a_off a_len b_off b_len =
  if len < 0 || a_off < 0 || b_off < 0 || a_off > a_len - len || b_off > b_len - len then
    invalid_arg name

let blit src src_off dst dst_off len =
  check "Ringway.Buffer.blit" len src_off (length src) dst_off (length dst);
  unsafe_blit src src_off dst dst_off len

let blit_to_bytes src src_off dst dst_off len =
  check "Ringway.Buffer.blit_to_bytes" len src_off (length src) dst_off (Bytes.length dst);
  unsafe_to_bytes src src_off dst dst_off len

let blit_from_bytes src src_off dst dst_off len =
  check "Ringway.Buffer.blit_from_bytes" len src_off (Bytes.length src) dst_off (length dst);
  unsafe_from_bytes src src_off dst dst_off len

let blit_from_string src src_off dst dst_off len =
  blit_from_bytes (Bytes.unsafe_of_string src) src_off dst dst_off len

let of_string s =
  let buffer = create (String.length s) in
  blit_from_string s 0 buffer 0 (String.length s);
  buffer

let to_string buffer =
  let bytes = Bytes.create (length buffer) in
  blit_to_bytes buffer 0 bytes 0 (length buffer);
  Bytes.unsafe_to_string bytes
