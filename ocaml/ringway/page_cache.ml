type t

external create : Unix.file_descr -> t = "ringway_ml_page_cache_create"

external unsafe_read :
  t ->
  Buffer.t ->
  (int[@untagged]) ->
  (int[@untagged]) ->
  (int[@untagged]) ->
  (int[@untagged]) = "ringway_ml_cached_read_byte" "ringway_ml_cached_read"
  [@@noalloc]

external unsafe_read_bytes :
  t ->
  Bytes.t ->
  (int[@untagged]) ->
  (int[@untagged]) ->
  (int[@untagged]) ->
  (int[@untagged]) = "ringway_ml_cached_read_bytes_byte" "ringway_ml_cached_read_bytes"
  [@@noalloc]

external note_written : t -> unit = "ringway_ml_page_cache_note_written" [@@noalloc]

let read t buffer ~off ~len ~pos =
  if off < 0 || len < 0 || off > Buffer.length buffer - len || pos < Operation.current_position then
    invalid_arg "Ringway.Page_cache.read";
  unsafe_read t buffer off len pos

let read_bytes t bytes ~off ~len ~pos =
  if off < 0 || len < 0 || off > Bytes.length bytes - len || pos < Operation.current_position then
    invalid_arg "Ringway.Page_cache.read_bytes";
  unsafe_read_bytes t bytes off len pos
