(* A disk whose writes are slow, while another thread syncs all the time: a commit of ext4's journal
   keeps whoever changes an inode waiting, and the first read after a write changes the access time.
   The loop goes on. *)

module System = Unix
open Lwt.Infix
open Ringway_lwt
module Unix = System

let ( let* ) = Lwt.bind

(* Of each write of the disk, and how long the loop may stand still, in seconds. *)
let slow = 1.2
let longest_pause = 0.6

let command words = Sys.command (Filename.quote_command (List.hd words) (List.tl words)) = 0

(* An ext4 file system on a loop device whose image is in a hostile file system. *)
let with_disk f =
  Hostile.with_mount (fun hostile ->
      let image = Filename.concat hostile "image" in
      let fd = Unix.openfile image [ O_WRONLY; O_CREAT; O_CLOEXEC ] 0o600 in
      Unix.ftruncate fd (64 * 1024 * 1024);
      Unix.close fd;
      let disk = Filename.concat Way.directory "disk" in
      if not (Sys.file_exists disk) then Unix.mkdir disk 0o755;
      if
        command [ "mkfs.ext4"; "-q"; "-F"; image ]
        && command [ "mount"; "-o"; "loop,relatime"; image; disk ]
      then
        Fun.protect
          ~finally:(fun () ->
            Hostile.set hostile "clear";
            (* Lazily: what was closed late may still be in use. *)
            ignore (command [ "umount"; "--lazy"; disk ]))
          (fun () -> f hostile disk)
      else Way.skip "no ext4 on a loop device here")

let sync_forever path over =
  let rec go size =
    if not !over then begin
      let fd = Unix.openfile path [ O_WRONLY; O_CREAT; O_CLOEXEC ] 0o600 in
      Unix.ftruncate fd (4096 * (1 + (size land 7)));
      Unix.fsync fd;
      Unix.close fd;
      go (size + 1)
    end
  in
  go 0

(* Ways to read the first byte. *)
let reads path =
  let byte = Bytes.create 1 in
  let* file = File.openfile path [ O_RDONLY ] 0 in
  let* fd = Ringway_lwt.Unix.openfile path [ O_RDONLY; O_CLOEXEC ] 0 in
  Lwt.return
    [
      ("File", fun () -> File.pread_bytes file byte ~pos:0 0 1);
      ("Unix", fun () -> Ringway_lwt.Unix.pread fd byte ~file_offset:0 0 1);
      ( "Reader",
        fun () ->
          Reader.with_file path (fun reader ->
              Reader.read reader byte >|= function `Ok n -> n | `Eof -> 0) );
      ( "Io",
        fun () -> Io.with_file ~mode:Input path (fun channel -> Io.read_into channel byte 0 1) );
    ]

let does_not_wait hostile disk () =
  let path = Filename.concat disk "file" in
  let* writer = File.openfile path [ O_RDWR; O_CREAT ] 0o600 in
  let* () = File.write_exactly_string writer (String.make 65_536 'a') 0 65_536 in
  let* () = File.fsync writer in
  let* reads = reads path in
  Hostile.set hostile (Printf.sprintf "image write delay %.0f" (slow *. 1000.));
  let over = ref false in
  let syncs = Thread.create (fun () -> sync_forever (Filename.concat disk "synced") over) () in
  let check (name, read) =
    let rec rounds n =
      if n = 0 then Lwt.return_unit
      else
        (* The next read has to change the access time. *)
        let* (_ : int) = File.pwrite_string writer "b" ~pos:0 0 1 in
        let* () = Lwt_unix.sleep (0.04 +. (0.13 *. float_of_int n)) in
        let* (_ : int) = read () in
        rounds (n - 1)
    in
    let* longest = Pause.longest (fun () -> rounds 4) in
    Printf.printf "%s: %.3f s\n%!" name longest;
    Lwt.return (name, longest)
  in
  let* measured = Lwt_list.map_s check reads in
  over := true;
  Hostile.set hostile "clear";
  let* () = Lwt_unix.sleep 0.1 in
  Thread.join syncs;
  List.iter
    (fun (name, longest) ->
      Alcotest.(check bool) (name ^ ": the loop goes on") true (longest < longest_pause))
    measured;
  File.close writer

(* Longer than each read of a file finds out whether it was changed. *)
let unwatched = 1.1

(* The read after a change has to change the access time, so it goes through the queue: also if it
   follows so soon that the kernel's clock has not moved since the read before. *)
let changes_are_noted _ disk () =
  let path = Filename.concat disk "noted" in
  let* file = File.openfile path [ O_RDWR; O_CREAT ] 0o600 in
  let* fd = Ringway_lwt.Unix.openfile path [ O_RDWR; O_CLOEXEC ] 0 in
  let* () = File.write_exactly_string file (String.make 8192 'a') 0 8192 in
  let byte = Bytes.create 1 in
  let from_file () = File.pread_bytes file byte ~pos:0 0 1 in
  let from_unix () = Ringway_lwt.Unix.pread fd byte ~file_offset:0 0 1 in
  let is_noted name read change =
    let* () = Lwt_unix.sleep 0.02 in
    let* (_ : int) = read () in
    (* This one finds the new access time. *)
    let* () = Lwt_unix.sleep 0.02 in
    let* (_ : int) = read () in
    let* () = Lwt_unix.sleep unwatched in
    let at_once = read () in
    Alcotest.(check bool) (name ^ ": cached") true (Lwt.state at_once = Lwt.Return 1);
    let* () = change () in
    let next = read () in
    Alcotest.(check bool) (name ^ ": noted") true (Lwt.is_sleeping next);
    Lwt.map ignore next
  in
  let rec until_idle () =
    let dispatcher = Dispatcher.current () in
    if Dispatcher.in_flight dispatcher = 0 || Dispatcher.has_only_polls dispatcher then
      Lwt.return_unit
    else Lwt.pause () >>= until_idle
  in
  (* Its promise is rejected after it was performed, before its result is seen. *)
  let cancelled () =
    let size () = (Unix.stat path).st_size in
    let before = size () in
    let write = File.pwrite_string file "b" ~pos:before 0 1 in
    let rec until_performed () =
      if Lwt.is_sleeping write && size () = before then begin
        let* () = Lwt.pause () in
        Unix.sleepf 0.0001;
        until_performed ()
      end
      else Lwt.return_unit
    in
    let* () = until_performed () in
    Lwt.cancel write;
    let* () = Lwt.catch (fun () -> write >|= ignore) (fun _ -> Lwt.return_unit) in
    until_idle ()
  in
  let* () =
    is_noted "write" from_file (fun () -> File.pwrite_string file "b" ~pos:0 0 1 >|= ignore)
  in
  let* () = is_noted "truncate" from_file (fun () -> File.truncate file 4096) in
  let* () = is_noted "allocate" from_file (fun () -> File.allocate file ~pos:0 ~len:16_384) in
  let* () =
    is_noted "ftruncate" from_unix (fun () -> Ringway_lwt.Unix.ftruncate fd 8192)
  in
  let* () = is_noted "cancelled write" from_file cancelled in
  let* () = Ringway_lwt.Unix.close fd in
  File.close file

(* What is mounted here ends with this process, however it ends: programs that look at all mounts
   would wait for a disk without its server. *)
let own_mounts () =
  let variable = "RINGWAY_TEST_OWN_MOUNTS" in
  Sys.getenv_opt variable <> None
  || command [ "sh"; "-c"; "unshare --mount true 2>/dev/null" ]
     && begin
          Unix.putenv variable "1";
          Unix.execvp "unshare"
            (Array.append [| "unshare"; "--mount"; Sys.executable_name |]
               (Array.sub Sys.argv 1 (Array.length Sys.argv - 1)))
        end

let () =
  if own_mounts () then
    (* Slow writes take most of the time. *)
    Way.run ~limit:600 "disk"
      [
        ( "cached reads while the journal commits",
          fun () -> with_disk (fun hostile disk -> Way.lwt (does_not_wait hostile disk) ()) );
        ( "changes are noted",
          fun () -> with_disk (fun hostile disk -> Way.lwt (changes_are_noted hostile disk) ()) );
      ]
  else Way.skip "no mount namespace of our own"
