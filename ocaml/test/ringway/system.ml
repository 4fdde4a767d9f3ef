(* Constants and system calls that OCaml's Unix does not have. Calls return minus an errno. *)

external constant : string -> int = "ringway_test_constant"
external seteuid : int -> int = "ringway_test_seteuid"
external limit_files : int -> int = "ringway_test_limit_files"
external close_on_exec : Unix.file_descr -> bool = "ringway_test_close_on_exec"
external openfile : string -> int -> int -> int = "ringway_test_open"

external transfer : bool -> Unix.file_descr -> Ringway.Buffer.t array -> int -> int
  = "ringway_test_transfer"

(* A read after a write changes the access time in ext4's journal. *)
external changes_access_times : Unix.file_descr -> bool = "ringway_test_changes_access_times"

(* Kernels 5.9 and 5.10 return 0 for what is not cached, too. *)
external end_is_unknown : unit -> bool = "ringway_test_end_is_unknown"

external fallocate : Unix.file_descr -> int -> int -> int -> int = "ringway_test_fallocate"
external ftruncate : Unix.file_descr -> int -> int = "ringway_test_ftruncate"

(* On Unix a descriptor is an int. *)
external number_of_descriptor : Unix.file_descr -> int = "%identity"
