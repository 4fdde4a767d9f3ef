(* The layout is known to queue_stubs.c: fill(). *)
type t = {
  opcode : int;
  flags : int;
  fd : int;
  fd2 : int;
  offset : int;
  length : int;
  buffer : Buffer.t;
  start : int;
  buffers : Buffer.t array;
  path : string;
  path2 : string;
  op_flags : int;
  mode : int;
  resolve : int;
  timeout_ns : int;
}

(* On Unix a descriptor is an int. *)
external int_of_descriptor : Unix.file_descr -> int = "%identity"
external descriptor_of_result : int -> Unix.file_descr = "%identity"

type directory = int

external constant : int -> int = "ringway_ml_constant" [@@noalloc]

let cwd = constant 0
let o_direct = constant 1
let o_cloexec = constant 2
let at_removedir = constant 3
let at_symlink_follow = constant 4
let pollin = constant 5
let pollout = constant 6
let pollerr = constant 7
let pollhup = constant 8
let iov_max = constant 9
let stat_size = constant 10
let ecanceled = constant 11
let directory = int_of_descriptor
let current_position = -1

let base =
  {
    opcode = 0;
    flags = 0;
    fd = -1;
    fd2 = -1;
    offset = 0;
    length = 0;
    buffer = Buffer.empty;
    start = 0;
    buffers = [||];
    path = "";
    path2 = "";
    op_flags = 0;
    mode = 0;
    resolve = 0;
    timeout_ns = 0;
  }

let nop = base

(* The kernel's flags have 32 bits. *)
let bits name n =
  if n < 0 || n > 0xffff_ffff then invalid_arg name;
  n

let transfer name opcode fd buffer off len pos =
  if off < 0 || len < 0 || off > Buffer.length buffer - len || pos < current_position then
    invalid_arg name;
  {
    base with
    opcode;
    fd = int_of_descriptor fd;
    offset = pos;
    length = len;
    buffer;
    start = off;
  }

let read fd buffer ~off ~len ~pos = transfer "Ringway.Operation.read" 1 fd buffer off len pos
let write fd buffer ~off ~len ~pos = transfer "Ringway.Operation.write" 2 fd buffer off len pos

let vectored name opcode fd buffers pos =
  if Array.length buffers > iov_max || pos < current_position then invalid_arg name;
  {
    base with
    opcode;
    fd = int_of_descriptor fd;
    offset = pos;
    length = Array.length buffers;
    (* A copy, so that the program cannot replace the elements meanwhile. *)
    buffers = Array.copy buffers;
  }

let readv fd buffers ~pos = vectored "Ringway.Operation.readv" 3 fd buffers pos
let writev fd buffers ~pos = vectored "Ringway.Operation.writev" 4 fd buffers pos
let on_file opcode fd = { base with opcode; fd = int_of_descriptor fd }
let fsync fd = on_file 5 fd
let fdatasync fd = { (on_file 5 fd) with op_flags = 1 }

let range name opcode fd off len op_flags =
  if off < 0 || len < 0 then invalid_arg name;
  { (on_file opcode fd) with offset = off; length = len; op_flags = bits name op_flags }

let sync_range fd ~off ~len ~flags = range "Ringway.Operation.sync_range" 6 fd off len flags

let path_argument name path =
  if String.contains path '\000' then invalid_arg name;
  path

let on_path name opcode dir path =
  { base with opcode; fd = dir; path = path_argument name path }

let openat ?(dir = cwd) ?(resolve = 0) path ~flags ~perm =
  let name = "Ringway.Operation.openat" in
  if resolve < 0 then invalid_arg name;
  {
    (on_path name 7 dir path) with
    op_flags = bits name (flags lor o_cloexec);
    mode = bits name perm;
    resolve;
  }

external open_flag : Unix.open_flag -> int = "ringway_ml_open_flag" [@@noalloc]

let open_flags flags = List.fold_left (fun bits flag -> bits lor open_flag flag) 0 flags
let close fd = on_file 8 fd

let statx ?(dir = cwd) path ~flags ~mask buffer =
  let name = "Ringway.Operation.statx" in
  if Buffer.length buffer < stat_size then invalid_arg name;
  { (on_path name 9 dir path) with op_flags = bits name flags; mode = bits name mask; buffer }

let fallocate fd ~mode ~off ~len = range "Ringway.Operation.fallocate" 10 fd off len mode

let ftruncate fd length =
  if length < 0 then invalid_arg "Ringway.Operation.ftruncate";
  { (on_file 11 fd) with length }

let fadvise fd ~off ~len ~advice = range "Ringway.Operation.fadvise" 12 fd off len advice

let two_paths name opcode dir path new_dir path2 =
  { (on_path name opcode dir path) with fd2 = new_dir; path2 = path_argument name path2 }

let rename ?(dir = cwd) ?(new_dir = cwd) ?(flags = 0) path path2 =
  let name = "Ringway.Operation.rename" in
  { (two_paths name 13 dir path new_dir path2) with op_flags = bits name flags }

let unlink ?(dir = cwd) path = on_path "Ringway.Operation.unlink" 14 dir path

let rmdir ?(dir = cwd) path =
  { (on_path "Ringway.Operation.rmdir" 14 dir path) with op_flags = at_removedir }

let mkdir ?(dir = cwd) path ~perm =
  let name = "Ringway.Operation.mkdir" in
  { (on_path name 15 dir path) with mode = bits name perm }

let link ?(dir = cwd) ?(new_dir = cwd) ?(follow = false) path path2 =
  {
    (two_paths "Ringway.Operation.link" 16 dir path new_dir path2) with
    op_flags = (if follow then at_symlink_follow else 0);
  }

let symlink ?(dir = cwd) ~target path =
  two_paths "Ringway.Operation.symlink" 17 dir path cwd target

let poll fd events = { (on_file 18 fd) with op_flags = bits "Ringway.Operation.poll" events }

let timeout ns =
  if ns < 0 then invalid_arg "Ringway.Operation.timeout";
  { base with opcode = 19; length = ns }

let flag bit t = { t with flags = t.flags lor bit }
let exact t = flag 1 t
let barrier t = flag 2 t
let continue_on_error t = flag 4 t
let socket t = flag 8 t
let dont_cache t = flag 16 t
let untorn t = flag 32 t

let with_timeout ns t =
  if ns < 0 then invalid_arg "Ringway.Operation.with_timeout";
  { t with timeout_ns = ns }

external opcode_name : int -> string = "ringway_ml_opcode_name"

let name t = opcode_name t.opcode
let buffer t = t.buffer
let buffers t = t.buffers
