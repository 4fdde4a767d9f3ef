(* Runs the cases of conformance/ (see its README.md) through the OCaml binding: each on every
   backend, once waiting in the queue and once for its descriptor. After every step pushed =
   delivered + in flight must hold. Cases that the binding cannot express are listed with the
   reason; an entry that no longer applies is a failure. Usage: conformance [PART-OF-A-NAME] *)

open Ringway

(* Why the binding cannot express a case, and which these are. *)
let beyond_int = "a number is beyond the 63 bits of OCaml's int"
let unlink_flags = "unlink and rmdir have no flags"
let link_flags = "link has one flag, follow"

let cannot =
  [
    ("a bad offset in a chain refuses the whole chain", beyond_int);
    ("a direct offset near INT64_MAX", beyond_int);
    ("a refused offset does not affect later operations", beyond_int);
    ("an offset near INT64_MAX", beyond_int);
    ("cancelling a timeout operation", beyond_int);
    ("fallocate errors", beyond_int);
    ("ftruncate errors", beyond_int);
    ("link of a symbolic link", link_flags);
    ("offsets over INT64_MAX are refused", beyond_int);
    ("operation timeouts that do not expire", beyond_int);
    ("pipes have no offsets", beyond_int);
    ("sync_range errors", beyond_int);
    ("unlink at a directory", unlink_flags);
    ("unlink errors", unlink_flags);
  ]

exception Failed of string
exception Skipped of string
exception Cannot of string

let failed format = Printf.ksprintf (fun text -> raise (Failed text)) format

(* ---- Words ---- *)

(* Terms joined by + - *, from left to right, modulo 2^64. *)
let number text =
  let length = String.length text in
  let term from to_ =
    let word = String.sub text from (to_ - from) in
    let scaled = String.length word > 1 && String.contains "KMGT" word.[String.length word - 1] in
    let digits = if scaled then String.sub word 0 (String.length word - 1) else word in
    let octal =
      String.length digits > 1 && digits.[0] = '0' && digits.[1] >= '0' && digits.[1] <= '7'
    in
    let value =
      if word = "max" then Int64.max_int
      else
        try Int64.of_string (if octal then "0o" ^ digits else digits)
        with Stdlib.Failure _ -> failed "not a number: %s" text
    in
    if scaled then
      Int64.shift_left value (10 * (1 + String.index "KMGT" word.[String.length word - 1]))
    else value
  in
  let rec go value operator from =
    let to_ = ref from in
    while !to_ < length && not (String.contains "+-*" text.[!to_]) do incr to_ done;
    let more = term from !to_ in
    let value =
      match operator with
      | '+' -> Int64.add value more
      | '-' -> Int64.sub value more
      | _ -> Int64.mul value more
    in
    if !to_ = length then value else go value text.[!to_] (!to_ + 1)
  in
  go 0L '+' 0

let int text =
  let n = number text in
  if n < 0L || n > Int64.of_int max_int then raise (Cannot beyond_int);
  Int64.to_int n

let is_digit c = c >= '0' && c <= '9'

let flags text =
  if is_digit text.[0] then int text
  else
    List.fold_left
      (fun bits name -> bits lor System.constant name)
      0
      (String.split_on_char '|' text)

let pattern at length =
  String.init length (fun i ->
      let p = at + i in
      Char.chr ((p lxor (p lsr 8) lxor (p lsr 16) lxor (p lsr 24)) land 255))

let content text =
  let bytes = Stdlib.Buffer.create 64 in
  let rec go from =
    if from < String.length text then begin
      let opening = String.index_from text from '(' in
      let closing = String.index_from text opening ')' in
      let inner = String.sub text (opening + 1) (closing - opening - 1) in
      let two () =
        match String.split_on_char ',' inner with
        | [ a; b ] -> (int a, int b)
        | _ -> failed "not a content: %s" text
      in
      (match String.sub text from (opening - from) with
      | "text" -> Stdlib.Buffer.add_string bytes inner
      | "hex" ->
          for i = 0 to (String.length inner / 2) - 1 do
            Stdlib.Buffer.add_char bytes
              (Char.chr (int_of_string ("0x" ^ String.sub inner (2 * i) 2)))
          done
      | "fill" ->
          let byte, length = two () in
          Stdlib.Buffer.add_string bytes (String.make length (Char.chr (byte land 255)))
      | "pattern" ->
          let at, length = two () in
          Stdlib.Buffer.add_string bytes (pattern at length)
      | _ -> failed "not a content: %s" text);
      go (if closing + 1 < String.length text then closing + 2 else closing + 1)
    end
  in
  if text <> "none" then (try go 0 with Not_found -> failed "not a content: %s" text);
  Stdlib.Buffer.contents bytes

let path text =
  let length = String.length text in
  if text = "\"\"" then ""
  else if length > 5 && String.sub text 0 5 = "long(" then
    String.make (int (String.sub text 5 (length - 6))) 'n'
  else text

let compare_bytes what found wanted =
  if found <> wanted then begin
    let i = ref 0 in
    let least = min (String.length found) (String.length wanted) in
    while !i < least && found.[!i] = wanted.[!i] do incr i done;
    let at s = if !i < String.length s then Char.code s.[!i] else -1 in
    failed "%s: byte %d is %d, expected %d (-1: none)" what !i (at found) (at wanted)
  end

(* ---- The state of a case ---- *)

type operation = {
  name : string;
  line : int;
  (* May raise, as the push may. *)
  made : Operation.t Lazy.t;
  kind : string;
  buffers : Buffer.t array;
  wanted : string;
  gives : string option;
  plain : int Lazy.t;
  mutable op : Queue.op;
  mutable result : int option;
  mutable order : int;
  mutable checked : bool;
}

type waiting = In_the_queue | For_its_descriptor

type case = {
  backend : Queue.backend;
  waiting : waiting;
  mutable line_number : int;
  mutable options : (string * int) list;
  mutable faults : string;
  mutable queue : Queue.t option;
  completions : Queue.Completions.t;
  descriptors : (string, int) Hashtbl.t;
  mutable operations : operation list; (* the last one first *)
  mutable chain : operation list option; (* the last one first *)
  mutable delivered : int;
}

let option_names = [ "in_flight"; "entries"; "completion_entries"; "threads"; "sync_threads" ]

let queue case =
  match case.queue with
  | Some queue -> queue
  | None ->
      let get name otherwise = Option.value (List.assoc_opt name case.options) ~default:otherwise in
      let queue =
        Backends.retry 2000 (fun () ->
            Queue.create ~backend:case.backend ~capacity:(get "in_flight" 1024)
              ~entries:(get "entries" 0)
              ~completion_entries:(get "completion_entries" 0)
              ~threads:(get "threads" 0) ~sync_threads:(get "sync_threads" 0)
              ~faults:case.faults ())
      in
      case.queue <- Some queue;
      queue

let descriptor_number case = function
  | "bad" -> 1_000_000
  | "negative" -> -1
  | "cwd" -> -100
  | name -> (
      match Hashtbl.find_opt case.descriptors name with
      | Some fd -> fd
      | None -> failed "unknown descriptor: %s" name)

let descriptor case name = Operation.descriptor_of_result (descriptor_number case name)

let define case name fd =
  if Hashtbl.mem case.descriptors name then failed "two descriptors have the name %s" name;
  Hashtbl.add case.descriptors name fd

let find case name =
  match List.find_opt (fun it -> it.name = name) case.operations with
  | Some it -> it
  | None -> failed "no operation has the name %s" name

let errno_of text = -System.constant (String.sub text 1 (String.length text - 1))

let is_expected case it result =
  List.exists
    (fun one ->
      match one with
      | "fd" ->
          if result >= 0 then define case it.name result;
          result >= 0
      | "plain" -> result = Lazy.force it.plain
      | _ when one.[0] = '-' -> result = errno_of one
      | _ when is_digit one.[0] || one.[0] = 'm' -> result = int one
      | _ -> result = flags one)
    (String.split_on_char '/' it.wanted)

let gather it at length =
  let all = String.concat "" (Array.to_list (Array.map Buffer.to_string it.buffers)) in
  if at + length > String.length all then
    failed "the buffers of %s do not have %d bytes at %d" it.name length at;
  String.sub all at length

(* Checks the counters, and the results that are new. *)
let check case =
  Option.iter
    (fun queue ->
      let stats = Queue.stats queue in
      if
        stats.pushed <> stats.delivered + stats.in_flight
        || stats.in_flight <> Queue.in_flight queue
      then
        failed "%d pushed, %d delivered, %d in flight (%d)" stats.pushed stats.delivered
          stats.in_flight (Queue.in_flight queue))
    case.queue;
  List.iter
    (fun it ->
      match it.result with
      | Some result when not it.checked ->
          it.checked <- true;
          case.line_number <- it.line;
          if not (is_expected case it result) then
            failed "%s: the result of %s is %d%s, expected %s" it.name it.kind result
              (if result < 0 then " (" ^ Unix.error_message (Queue.error result) ^ ")" else "")
              it.wanted;
          Option.iter
            (fun gives ->
              let wanted = content gives in
              compare_bytes "the buffer" (gather it 0 (String.length wanted)) wanted)
            it.gives
      | _ -> ())
    case.operations

let set_result case it result =
  if it.result <> None then failed "%s completed twice" it.name;
  case.delivered <- case.delivered + 1;
  it.result <- Some result;
  it.order <- case.delivered

let take case queue ~min =
  let count = Queue.reap queue case.completions ~min ~timeout_ns:(-1) in
  if count <> Queue.Completions.length case.completions then failed "length differs";
  for i = 0 to count - 1 do
    let op = Queue.Completions.op case.completions i in
    match List.find_opt (fun it -> it.op = op) case.operations with
    | Some it -> set_result case it (Queue.Completions.result case.completions i)
    | None -> failed "a completion does not match an operation"
  done;
  count

(* Waits for `min` completions and delivers some that are ready. The kernel may end a wait without a
   signal, for each ring that an earlier case has closed. *)
let reap case ~min =
  let queue = queue case in
  let count =
    match case.waiting with
    | In_the_queue ->
        let rec wait ends =
          match take case queue ~min with
          | 0 when min > 0 && ends > 0 && Queue.in_flight queue > 0 -> wait (ends - 1)
          | count -> count
        in
        wait 100
    | For_its_descriptor ->
        let rec wait () =
          match take case queue ~min:0 with
          | 0 when min > 0 ->
              (try ignore (Unix.select [ Queue.descriptor queue ] [] [] (-1.))
               with Unix.Unix_error (EINTR, _, _) -> ());
              wait ()
          | count -> count
        in
        wait ()
  in
  check case;
  count

let wait_for case it =
  while it.result = None do
    if reap case ~min:1 = 0 then failed "reap returned 0, but %s has not completed" it.name
  done

let rec wait_for_all case queue =
  if Queue.in_flight queue > 0 then begin
    if reap case ~min:1 = 0 then failed "reap returned 0 with operations in flight";
    wait_for_all case queue
  end

(* The result of a push: minus an errno if it is refused. *)
let attempt push =
  match push () with
  | () -> 0
  | exception Queue.Full -> errno_of "-EAGAIN"
  | exception Invalid_argument _ -> errno_of "-EINVAL"
  | exception Queue.Error { error; _ } ->
      let names = [ "-EINVAL"; "-EBUSY"; "-ESHUTDOWN"; "-ECHILD" ] in
      errno_of (List.find (fun name -> Queue.error (errno_of name) = error) names)

(* ---- Operations ---- *)

let make case words wanted =
  let name, words =
    match words with
    | first :: rest when first.[String.length first - 1] = ':' ->
        (String.sub first 0 (String.length first - 1), rest)
    | words -> (List.hd words, words)
  in
  let kind = List.hd words in
  let parameter key =
    let prefix = key ^ "=" in
    let length = String.length prefix in
    List.find_map
      (fun word ->
        if String.length word >= length && String.sub word 0 length = prefix then
          Some (String.sub word length (String.length word - length))
        else None)
      words
  in
  let need key =
    match parameter key with Some value -> value | None -> failed "missing parameter %s=" key
  in
  let get key otherwise = Option.value (parameter key) ~default:otherwise in
  let fd () = descriptor case (need "fd") in
  let directory key =
    match get key "cwd" with
    | "cwd" -> Operation.cwd
    | name -> Operation.directory (descriptor case name)
  in
  let pos () =
    match get "offset" "0" with "current" -> Operation.current_position | text -> int text
  in
  let skew = int (get "skew" "0") in
  let fresh length =
    let buffer = Buffer.sub (Buffer.create_aligned (length + skew)) skew length in
    Bigarray.Array1.fill buffer '\xee';
    buffer
  in
  let lens () =
    match need "lens" with
    | "none" -> []
    | text ->
        List.concat_map
          (fun one ->
            match String.split_on_char 'x' one with
            | [ times; length ] -> List.init (int times) (fun _ -> int length)
            | _ -> [ int one ])
          (String.split_on_char ',' text)
  in
  let filled lengths data =
    let at = ref 0 in
    let buffers =
      List.map
        (fun length ->
          let buffer = fresh length in
          Buffer.blit_from_string data !at buffer 0 length;
          at := !at + length;
          buffer)
        lengths
    in
    if !at <> String.length data then failed "data= and lens= have different lengths";
    Array.of_list buffers
  in
  let flag key = flags (get key "0") in
  let dir () = directory "dir" in
  let path_of key = path (need key) in
  let buffers =
    match kind with
    | "read" -> [| fresh (int (need "len")) |]
    | "readv" -> Array.of_list (List.map fresh (lens ()))
    | "write" ->
        let data = content (need "data") in
        filled [ String.length data ] data
    | "writev" -> filled (lens ()) (content (need "data"))
    | "statx" -> [| Buffer.create Stat.buffer_size |]
    | _ -> [||]
  in
  let whole () = Buffer.length buffers.(0) in
  let operation () =
    match kind with
    | "nop" -> Operation.nop
    | "read" -> Operation.read (fd ()) buffers.(0) ~off:0 ~len:(whole ()) ~pos:(pos ())
    | "write" -> Operation.write (fd ()) buffers.(0) ~off:0 ~len:(whole ()) ~pos:(pos ())
    | "readv" -> Operation.readv (fd ()) buffers ~pos:(pos ())
    | "writev" -> Operation.writev (fd ()) buffers ~pos:(pos ())
    | "fsync" -> Operation.fsync (fd ())
    | "fdatasync" -> Operation.fdatasync (fd ())
    | "close" ->
        let operation = Operation.close (fd ()) in
        Hashtbl.remove case.descriptors (need "fd");
        operation
    | "sync_range" ->
        let len = int (need "len") in
        Operation.sync_range (fd ()) ~off:(pos ()) ~len ~flags:(flag "flags")
    | "open" ->
        Operation.openat ~dir:(dir ()) ~resolve:(flag "resolve") (path_of "path")
          ~flags:(flag "flags") ~perm:(flag "mode")
    | "statx" ->
        let mask = flags (get "mask" "STATX_BASIC_STATS") in
        Operation.statx ~dir:(dir ()) (path_of "path") ~flags:(flag "flags") ~mask buffers.(0)
    | "fallocate" ->
        let len = int (need "len") in
        Operation.fallocate (fd ()) ~mode:(flag "mode") ~off:(pos ()) ~len
    | "ftruncate" -> Operation.ftruncate (fd ()) (int (need "len"))
    | "fadvise" ->
        let len = int (need "len") in
        Operation.fadvise (fd ()) ~off:(pos ()) ~len ~advice:(flag "advice")
    | "rename" ->
        Operation.rename ~dir:(dir ()) ~new_dir:(directory "dir2") ~flags:(flag "flags")
          (path_of "path") (path_of "path2")
    | "link" ->
        let bits = flag "flags" in
        let follow = bits = System.constant "AT_SYMLINK_FOLLOW" in
        if bits <> 0 && not follow then raise (Cannot link_flags);
        Operation.link ~dir:(dir ()) ~new_dir:(directory "dir2") ~follow (path_of "path")
          (path_of "path2")
    | "unlink" ->
        let bits = flag "flags" in
        if bits = 0 then Operation.unlink ~dir:(dir ()) (path_of "path")
        else if bits = System.constant "AT_REMOVEDIR" then
          Operation.rmdir ~dir:(dir ()) (path_of "path")
        else raise (Cannot unlink_flags)
    | "mkdir" -> Operation.mkdir ~dir:(dir ()) (path_of "path") ~perm:(flags (need "mode"))
    | "symlink" ->
        Operation.symlink ~dir:(dir ()) ~target:(path_of "target") (path_of "path")
    | "poll" -> Operation.poll (fd ()) (flags (need "events"))
    | "timeout" -> Operation.timeout (int (need "ns"))
    | _ -> failed "unknown operation: %s" kind
  in
  let with_flags operation =
    let apply word change operation = if List.mem word words then change operation else operation in
    operation
    |> apply "exact" Operation.exact
    |> apply "drain" Operation.barrier
    |> apply "continue_on_error" Operation.continue_on_error
    |> Operation.with_timeout (int (get "timeout" "0"))
  in
  let plain () =
    match kind with
    | "read" | "readv" ->
        let result = System.transfer false (fd ()) buffers (pos ()) in
        Array.iter (fun buffer -> Bigarray.Array1.fill buffer '\xee') buffers;
        result
    | "write" | "writev" -> System.transfer true (fd ()) buffers (pos ())
    | "fallocate" -> System.fallocate (fd ()) (flag "mode") (pos ()) (int (need "len"))
    | "ftruncate" -> System.ftruncate (fd ()) (int (need "len"))
    | _ -> failed "no plain system call for %s" kind
  in
  let it =
    {
      name;
      line = case.line_number;
      made = lazy (with_flags (operation ()));
      kind;
      buffers;
      wanted;
      gives = parameter "gives";
      plain = lazy (plain ());
      op = Queue.no_op;
      result = None;
      order = 0;
      checked = false;
    }
  in
  if List.mem "plain" (String.split_on_char '/' wanted) then ignore (Lazy.force it.plain);
  it

let push case it () = it.op <- Queue.push (queue case) (Lazy.force it.made)

(* ---- Steps ---- *)

let read_file path at length =
  let fd = Unix.openfile path [ O_RDONLY; O_CLOEXEC ] 0 in
  Fun.protect
    ~finally:(fun () -> Unix.close fd)
    (fun () ->
      let length = Option.value length ~default:(Unix.fstat fd).st_size in
      let bytes = Bytes.create length in
      ignore (Unix.lseek fd at SEEK_SET);
      let rec go from =
        match Unix.read fd bytes from (length - from) with
        | 0 -> from
        | more -> go (from + more)
      in
      Bytes.sub_string bytes 0 (go 0))

let write_all fd data =
  if Unix.write_substring fd data 0 (String.length data) <> String.length data then
    failed "a short write"

let kind_name : Unix.file_kind -> string = function
  | S_REG -> "file"
  | S_DIR -> "dir"
  | S_LNK -> "symlink"
  | S_FIFO -> "fifo"
  | S_CHR | S_BLK | S_SOCK -> "other"

(* Whether the field of a file is one of these, and has this value. *)
let check_field (stat : Unix.LargeFile.stats) field value =
  let found =
    match field with
    | "size" -> Some (Int64.to_string stat.st_size, Int64.to_string (number value))
    | "mode" -> Some (string_of_int stat.st_perm, string_of_int (int value))
    | "nlink" -> Some (string_of_int stat.st_nlink, value)
    | "type" -> Some (kind_name stat.st_kind, value)
    | _ -> None
  in
  Option.iter
    (fun (found, value) ->
      if found <> value then failed "%s is %s, expected %s" field found value)
    found;
  found <> None

let check_stat it field value =
  let stat = Stat.large it.buffers.(0) in
  if field = "same" then begin
    if stat <> Unix.LargeFile.lstat (path value) then failed "it differs from lstat of %s" value
  end
  else if not (check_field stat field value) then failed "unknown field: %s" field

let check_path what name rest =
  let name = path name in
  match (what, Unix.LargeFile.lstat name, rest) with
  | exception Unix.Unix_error (ENOENT, _, _) when what = "absent" -> ()
  | "absent", _, [] -> failed "%s exists" name
  | "target", _, [ target ] ->
      if Unix.readlink name <> target then failed "the target is %s" (Unix.readlink name)
  | "same", stat, [ other ] ->
      if stat.st_ino <> (Unix.LargeFile.lstat (path other)).st_ino then
        failed "%s and %s are different files" name other
  | _, stat, [ value ] when check_field stat what value -> ()
  | _ -> failed "unknown step: %s" what

let is_root = Unix.geteuid () = 0

let option case word =
  match String.split_on_char '=' word with
  | [ "faults"; plan ] ->
      case.faults <- String.map (function ':' -> '=' | ',' -> ' ' | c -> c) plan
  | [ name; value ] when List.mem name option_names ->
      case.options <- (name, int value) :: case.options
  | _ -> failed "unknown option: %s" word

let expect_refusal case wanted result =
  if result = 0 || not (List.mem result (List.map errno_of (String.split_on_char '/' wanted))) then
    failed "the push returned %d, expected %s" result wanted;
  check case

let step case words =
  let words, wanted =
    match List.rev words with
    | wanted :: "=>" :: rest -> (List.rev rest, wanted)
    | _ -> (words, "")
  in
  (match words with
  | "queue" :: options -> List.iter (option case) options
  | [ "as"; "ordinary" ] -> if is_root && System.seteuid 65534 <> 0 then failed "seteuid"
  | [ "limit"; "fsize"; n ] -> if System.limit_files (int n) <> 0 then failed "setrlimit"
  | [ "make"; (("file" | "sparse") as what); name; text ] ->
      let fd = Unix.openfile (path name) [ O_WRONLY; O_CREAT; O_EXCL; O_CLOEXEC ] 0o644 in
      if what = "file" then write_all fd (content text)
      else Unix.LargeFile.ftruncate fd (number text);
      Unix.close fd
  | [ "make"; "dir"; name ] -> Unix.mkdir (path name) 0o755
  | [ "make"; "fifo"; name ] -> Unix.mkfifo (path name) 0o644
  | [ "make"; "symlink"; name; target ] -> Unix.symlink target (path name)
  | [ "chmod"; name; mode ] -> Unix.chmod (path name) (int mode)
  | "open" :: name :: file :: how :: mode ->
      let bits = flags how in
      let mode = match mode with [ mode ] -> int mode | _ -> 0o644 in
      let fd = System.openfile (path file) bits mode in
      if fd = errno_of "-EINVAL" && bits land Operation.o_direct <> 0 then
        raise (Skipped "no direct I/O on this file system");
      if fd < 0 then failed "open: %s" (Unix.error_message (Queue.error fd));
      define case name fd
  | [ (("pipe" | "sockets") as what); one; other ] ->
      let a, b =
        if what = "pipe" then Unix.pipe ~cloexec:true ()
        else Unix.socketpair ~cloexec:true PF_UNIX SOCK_STREAM 0
      in
      define case one (System.number_of_descriptor a);
      define case other (System.number_of_descriptor b)
  | [ "close"; name ] ->
      Unix.close (descriptor case name);
      Hashtbl.remove case.descriptors name
  | [ "seek"; name; n ] -> ignore (Unix.LargeFile.lseek (descriptor case name) (number n) SEEK_SET)
  | [ "put"; name; text ] -> write_all (descriptor case name) (content text)
  | [ "take"; name; text ] ->
      let wanted = content text in
      let bytes = Bytes.create (String.length wanted) in
      let fd = descriptor case name in
      let done_ = ref 0 in
      while !done_ < Bytes.length bytes do
        (match Unix.select [ fd ] [] [] 0.001 with
        | [], _, _ -> ()
        | _ ->
            let more = Unix.read fd bytes !done_ (Bytes.length bytes - !done_) in
            if more = 0 then failed "only %d bytes arrived" !done_;
            done_ := !done_ + more);
        ignore (reap case ~min:0)
      done;
      compare_bytes "what comes" (Bytes.to_string bytes) wanted
  | [ "emptied"; name ] ->
      ignore (reap case ~min:0);
      while Unix.select [ descriptor case name ] [] [] 0. <> ([], [], []) do
        Unix.sleepf 0.001;
        ignore (reap case ~min:0)
      done
  | "do" :: words ->
      let it = make case words wanted in
      case.operations <- it :: case.operations;
      (match attempt (push case it) with
      | 0 -> wait_for case it
      | refused -> set_result case it refused)
  | "push" :: words -> (
      let it = make case words wanted in
      match case.chain with
      | Some chain -> case.chain <- Some (it :: chain)
      | None ->
          case.operations <- it :: case.operations;
          let result = attempt (push case it) in
          if result <> 0 then failed "the push returned %d" result)
  | "refuse" :: words ->
      let before = Queue.in_flight (queue case) in
      let it = make case words wanted in
      expect_refusal case wanted (attempt (push case it));
      if Queue.in_flight (queue case) <> before then failed "a refused push occupies a slot"
  | [ "chain" ] ->
      ignore (queue case);
      case.chain <- Some []
  | [ "end" ] ->
      let chain = List.rev (Option.value case.chain ~default:[]) in
      let push () =
        let operations = Array.of_list (List.map (fun it -> Lazy.force it.made) chain) in
        let ops = Queue.push_chain (queue case) operations in
        List.iteri (fun i it -> it.op <- ops.(i)) chain
      in
      case.chain <- None;
      let result = attempt push in
      if wanted <> "" then expect_refusal case wanted result
      else if result <> 0 then failed "push_chain returned %d" result
      else case.operations <- List.rev_append chain case.operations
  | [ "submit" ] -> Queue.submit (queue case)
  | [ "look" ] -> ignore (reap case ~min:0)
  | [ "ready"; n ] -> Queue.wait (queue case) ~min:(int n) ~timeout_ns:(-1)
  | [ "wait"; "all" ] -> wait_for_all case (queue case)
  | "wait" :: names -> List.iter (fun name -> wait_for case (find case name)) names
  | "pending" :: names ->
      ignore (reap case ~min:0);
      List.iter
        (fun name ->
          match (find case name).result with
          | Some result -> failed "%s completed with %d" name result
          | None -> ())
        names
  | [ "cancel"; name ] ->
      let result = Queue.cancel (queue case) (find case name).op in
      if result <> (wanted = "0") then failed "cancel returned %b, expected %s" result wanted
  | [ "cancel_all" ] ->
      let result = Queue.cancel_all (queue case) in
      if result <> int wanted then failed "cancel_all returned %d, expected %s" result wanted
  | "order" :: first :: rest ->
      ignore
        (List.fold_left
           (fun before name ->
             if (find case before).order >= (find case name).order then
               failed "%s was delivered before %s" name before;
             name)
           first rest)
  | [ "in_flight"; n ] ->
      let found = Queue.in_flight (queue case) in
      if found <> int n then failed "%d operations are in flight" found
  | [ "free_slots"; n ] ->
      let queue = queue case in
      let found = Queue.capacity queue - Queue.in_flight queue in
      if found <> int n then failed "%d slots are free" found
  | [ "bytes"; name; at; text ] ->
      let wanted = content text in
      compare_bytes "the buffer" (gather (find case name) (int at) (String.length wanted)) wanted
  | [ "stat"; name; field; value ] -> check_stat (find case name) field value
  | [ "file"; name; text ] -> compare_bytes name (read_file (path name) 0 None) (content text)
  | [ "part"; name; at; text ] ->
      let wanted = content text in
      compare_bytes name (read_file (path name) (int at) (Some (String.length wanted))) wanted
  | [ "position"; name; n ] ->
      let found = Unix.LargeFile.lseek (descriptor case name) 0L SEEK_CUR in
      if found <> number n then failed "the current position is %Ld" found
  | [ "cloexec"; name ] ->
      if not (System.close_on_exec (descriptor case name)) then failed "not close-on-exec"
  | (("absent" | "size" | "type" | "target" | "mode" | "nlink" | "same") as what) :: name :: rest ->
      check_path what name rest
  | words -> failed "unknown step: %s" (String.concat " " words));
  check case

(* ---- Cases ---- *)

type script = { file : string; title : string; lines : (int * string) list }

let words_of text round =
  String.concat (string_of_int round) (String.split_on_char '$' text)
  |> String.split_on_char ' '
  |> List.filter (( <> ) "")

let run_lines case lines =
  let run round (line, text) =
    case.line_number <- line;
    step case (words_of text round)
  in
  let rec go lines =
    match lines with
    | [] -> ()
    | (_, text) :: rest when String.length text > 7 && String.sub text 0 7 = "repeat " ->
        let rec split body = function
          | (_, "again") :: rest -> (List.rev body, rest)
          | line :: rest -> split (line :: body) rest
          | [] -> failed "repeat without again"
        in
        let body, rest = split [] rest in
        for round = 0 to int_of_string (String.sub text 7 (String.length text - 7)) - 1 do
          List.iter (run round) body
        done;
        go rest
    | line :: rest ->
        run 0 line;
        go rest
  in
  go lines

type outcome = Passed | Wrong of string | Left_out of string | Not_expressed of string

let run script backend waiting directory =
  let case =
    {
      backend;
      waiting;
      line_number = 0;
      options = [];
      faults = "";
      queue = None;
      completions = Queue.Completions.create (if waiting = In_the_queue then 3 else 300);
      descriptors = Hashtbl.create 16;
      operations = [];
      chain = None;
      delivered = 0;
    }
  in
  Unix.mkdir directory 0o777;
  Unix.chmod directory 0o777;
  Sys.chdir directory;
  (* A case that hangs ends the program. *)
  ignore (Unix.alarm 120);
  let outcome =
    match
      run_lines case script.lines;
      Option.iter (wait_for_all case) case.queue;
      if case.chain <> None then failed "chain without end"
    with
    | () -> Passed
    | exception Cannot reason -> Not_expressed reason
    | exception Skipped reason -> Left_out reason
    | exception error ->
        let text = match error with Failed text -> text | error -> Printexc.to_string error in
        Wrong (Printf.sprintf "%s:%d: %s" script.file case.line_number text)
  in
  Option.iter Queue.close case.queue;
  ignore (Unix.alarm 0);
  ignore (System.limit_files (-1));
  if is_root then assert (System.seteuid 0 = 0);
  Hashtbl.iter (fun _ fd -> Unix.close (Operation.descriptor_of_result fd)) case.descriptors;
  Sys.chdir "../..";
  outcome

let load directory file =
  let channel = open_in (Filename.concat directory file) in
  let rec go number scripts =
    match String.trim (input_line channel) with
    | exception End_of_file -> scripts
    | "" -> go (number + 1) scripts
    | line when line.[0] = '#' -> go (number + 1) scripts
    | line when String.length line > 5 && String.sub line 0 5 = "case " ->
        let title = String.sub line 5 (String.length line - 5) in
        go (number + 1) ({ file; title; lines = [] } :: scripts)
    | line -> (
        match scripts with
        | script :: rest ->
            go (number + 1) ({ script with lines = (number, line) :: script.lines } :: rest)
        | [] -> failwith (file ^ ": a step that is not in a case"))
  in
  let scripts = go 1 [] in
  close_in channel;
  List.rev_map (fun script -> { script with lines = List.rev script.lines }) scripts

(* RINGWAY_CONFORMANCE, or conformance/ in a directory above this one. *)
let rec cases_directory from =
  let candidate = Filename.concat from "conformance" in
  if Sys.file_exists (Filename.concat candidate "README.md") then Some candidate
  else if Filename.dirname from = from then None
  else cases_directory (Filename.dirname from)

let contains text part =
  let n = String.length part in
  let rec go i = i + n <= String.length text && (String.sub text i n = part || go (i + 1)) in
  go 0

let () =
  let part = if Array.length Sys.argv > 1 then Sys.argv.(1) else "" in
  let directory =
    match Sys.getenv_opt "RINGWAY_CONFORMANCE" with
    | Some directory -> Some directory
    | None -> cases_directory (Sys.getcwd ())
  in
  match directory with
  | None -> Backends.skip "the directory conformance/ is not here"
  | Some directory ->
      Sys.set_signal Sys.sigpipe Signal_ignore;
      Sys.set_signal Sys.sigxfsz Signal_ignore;
      ignore (Unix.umask 0o022);
      let files = List.sort compare (Array.to_list (Sys.readdir directory)) in
      let files = List.filter (fun file -> Filename.check_suffix file ".case") files in
      let scripts = List.concat_map (load directory) files in
      let scripts = List.filter (fun script -> contains script.title part) scripts in
      let scratch = Printf.sprintf "conformance-%d" (Unix.getpid ()) in
      Unix.mkdir scratch 0o777;
      Unix.chmod scratch 0o777;
      let turn = ref 0 and passed = ref 0 and wrong = ref 0 in
      let complain format =
        Printf.ksprintf
          (fun text ->
            incr wrong;
            Printf.printf "%s\n%!" text)
          format
      in
      let missed = Hashtbl.create 16 and skipped = Hashtbl.create 16 in
      let run_on backend waiting script =
        incr turn;
        let mode = Queue.backend_name backend in
        match run script backend waiting (Printf.sprintf "%s/%d" scratch !turn) with
        | Passed -> incr passed
        | Wrong text -> complain "%s: %s: %s" mode script.title text
        | Left_out reason ->
            if not (Hashtbl.mem skipped reason) then begin
              Hashtbl.add skipped reason ();
              Backends.skip (script.title ^ ": " ^ reason)
            end
        | Not_expressed reason ->
            Hashtbl.replace missed script.title ();
            if not (List.mem (script.title, reason) cannot) then
              complain "%s: not expressed: %s" script.title reason
      in
      let backends = Lazy.force Backends.available in
      List.iter
        (fun backend ->
          List.iter
            (fun waiting -> List.iter (run_on backend waiting) scripts)
            [ In_the_queue; For_its_descriptor ])
        backends;
      if part = "" && backends <> [] then
        List.iter
          (fun (title, _) ->
            if not (Hashtbl.mem missed title) then
              complain "%s: listed as not expressed, but it is" title)
          cannot;
      ignore (Sys.command (Filename.quote_command "rm" [ "-rf"; scratch ]));
      Printf.printf "%d cases, %d not expressed, %d backends: %d runs passed, %d wrong\n%!"
        (List.length scripts) (Hashtbl.length missed) (List.length backends) !passed !wrong;
      if !wrong > 0 then exit 1
