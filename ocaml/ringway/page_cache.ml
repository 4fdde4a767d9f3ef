external unsafe_read :
  Unix.file_descr ->
  Buffer.t ->
  (int[@untagged]) ->
  (int[@untagged]) ->
  (int[@untagged]) ->
  (int[@untagged]) = "ringway_ml_cached_read_byte" "ringway_ml_cached_read"
  [@@noalloc]

external unsafe_read_bytes :
  Unix.file_descr ->
  Bytes.t ->
  (int[@untagged]) ->
  (int[@untagged]) ->
  (int[@untagged]) ->
  (int[@untagged]) = "ringway_ml_cached_read_bytes_byte" "ringway_ml_cached_read_bytes"
  [@@noalloc]

let read fd buffer ~off ~len ~pos =
  if off < 0 || len < 0 || off > Buffer.length buffer - len || pos < Operation.current_position then
    invalid_arg "Ringway.Page_cache.read";
  unsafe_read fd buffer off len pos

let read_bytes fd bytes ~off ~len ~pos =
  if off < 0 || len < 0 || off > Bytes.length bytes - len || pos < Operation.current_position then
    invalid_arg "Ringway.Page_cache.read_bytes";
  unsafe_read_bytes fd bytes off len pos
