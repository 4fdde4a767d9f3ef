open Ringway

type t = {
  fd : Unix.file_descr;
  transfer : Transfer.t;
  (* The end of what the kernel was asked for. *)
  mutable asked : int;
}

(* The kernel reads 128 KiB ahead by default; more than this gained nothing. *)
let window = 512 * 1024

(* POSIX_FADV_WILLNEED *)
let will_need = 3

let create fd = { fd; transfer = Transfer.create (); asked = 0 }

let missed t ~pos =
  if (pos + (window / 2) >= t.asked || pos < t.asked - window)
     && not (Transfer.is_running t.transfer)
  then begin
    t.asked <- pos + window;
    Transfer.start t.transfer
      (Operation.fadvise t.fd ~off:pos ~len:window ~advice:will_need)
      ignore
  end

let stop t = Transfer.stop t.transfer Lwt.Canceled
