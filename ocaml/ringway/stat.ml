external constant : int -> int = "ringway_ml_stat_constant" [@@noalloc]

let buffer_size = constant 0
let empty_path = constant 1
let no_follow = constant 2
let basic = constant 3

external unsafe_large : Buffer.t -> Unix.LargeFile.stats = "ringway_ml_stat"

let large buffer =
  if Buffer.length buffer < buffer_size then invalid_arg "Ringway.Stat";
  unsafe_large buffer

let stats buffer =
  let large = large buffer in
  let size = Int64.to_int large.st_size in
  if Int64.of_int size <> large.st_size then raise (Unix.Unix_error (EOVERFLOW, "stat", ""));
  {
    Unix.st_dev = large.st_dev;
    st_ino = large.st_ino;
    st_kind = large.st_kind;
    st_perm = large.st_perm;
    st_nlink = large.st_nlink;
    st_uid = large.st_uid;
    st_gid = large.st_gid;
    st_rdev = large.st_rdev;
    st_size = size;
    st_atime = large.st_atime;
    st_mtime = large.st_mtime;
    st_ctime = large.st_ctime;
  }
