type t =
  | Checksum of { mib : int; cold : bool }
  | Reads of { direct : bool; promises : int }
  | Tcp of { mib : int }
  | Echo of { connections : int }

let checksum_block = 32 * 1024
let read_block = 4096
let message = 100

let kind = function
  | Checksum { cold = false; _ } -> "checksum"
  | Checksum { cold = true; _ } -> "cold"
  | Reads { direct = true; _ } -> "direct"
  | Reads { direct = false; _ } -> "cached"
  | Tcp _ -> "tcp"
  | Echo _ -> "echo"

let number = function
  | Checksum { mib; _ } | Tcp { mib } -> mib
  | Reads { promises; _ } -> promises
  | Echo { connections } -> connections

let to_string t = Printf.sprintf "%s/%d" (kind t) (number t)

let of_string text =
  match String.split_on_char '/' text with
  | [ kind; number ] -> (
      match (kind, int_of_string_opt number) with
      | _, None -> None
      | _, Some number when number <= 0 -> None
      | "checksum", Some mib -> Some (Checksum { mib; cold = false })
      | "cold", Some mib -> Some (Checksum { mib; cold = true })
      | "direct", Some promises -> Some (Reads { direct = true; promises })
      | "cached", Some promises -> Some (Reads { direct = false; promises })
      | "tcp", Some mib -> Some (Tcp { mib })
      | "echo", Some connections -> Some (Echo { connections })
      | _ -> None)
  | _ -> None

let counted number word = Printf.sprintf "%d %s%s" number word (if number = 1 then "" else "s")

let title = function
  | Checksum { mib; cold = false } -> Printf.sprintf "checksum of a cached file, %d MiB" mib
  | Checksum { mib; cold = true } -> Printf.sprintf "checksum of a file not cached, %d MiB" mib
  | Reads { direct = true; promises } ->
      Printf.sprintf "direct 4 KiB reads, %s" (counted promises "promise")
  | Reads { direct = false; promises } ->
      Printf.sprintf "cached 4 KiB reads, %s" (counted promises "promise")
  | Tcp { mib } -> Printf.sprintf "checksum of a TCP stream, %d MiB" mib
  | Echo { connections } ->
      Printf.sprintf "echo server, %s" (counted connections "connection")

let operation = function Checksum _ | Reads _ | Tcp _ -> "read" | Echo _ -> "message"
let is_stream = function Checksum _ | Tcp _ -> true | Reads _ | Echo _ -> false

let rows ~checksums ~colds ~direct ~cached ~tcp ~echo =
  List.concat
    [
      List.map (fun mib -> Checksum { mib; cold = false }) checksums;
      List.map (fun mib -> Checksum { mib; cold = true }) colds;
      List.map (fun promises -> Reads { direct = true; promises }) direct;
      List.map (fun promises -> Reads { direct = false; promises }) cached;
      List.map (fun mib -> Tcp { mib }) tcp;
      List.map (fun connections -> Echo { connections }) echo;
    ]

let standard =
  rows ~checksums:[ 64 ] ~colds:[ 64 ] ~direct:[ 1; 32 ] ~cached:[ 1; 32 ] ~tcp:[ 64 ]
    ~echo:[ 1; 64 ]

let full =
  let sizes = [ 64; 128; 256; 512; 1024; 2048 ] in
  rows ~checksums:sizes ~colds:[ 256; 1024 ] ~direct:[ 1; 32; 128 ] ~cached:[ 1; 32 ] ~tcp:sizes
    ~echo:[ 1; 64; 1000 ]

let check =
  rows ~checksums:[ 2 ] ~colds:[ 2 ] ~direct:[ 2 ] ~cached:[ 2 ] ~tcp:[ 2 ] ~echo:[ 2 ]

module Data = struct
  external get64 : Ringway.Buffer.t -> int -> int64 = "%caml_bigstring_get64"

  let mib t ~reads_mib =
    match t with
    | Checksum { mib; _ } -> Some mib
    | Reads _ -> Some reads_mib
    | Tcp _ | Echo _ -> None

  let mebibyte = 1024 * 1024

  let create path ~mib =
    let fd =
      Unix.openfile path [ O_WRONLY; O_CREAT; O_TRUNC; O_CLOEXEC ] 0o600
    in
    let random = Random.State.make [| 1 |] in
    let data = Bytes.init mebibyte (fun _ -> Char.chr (Random.State.int random 256)) in
    let rec write from =
      if from < mebibyte then write (from + Unix.write fd data from (mebibyte - from))
    in
    Fun.protect
      ~finally:(fun () -> Unix.close fd)
      (fun () ->
        for number = 0 to mib - 1 do
          for block = 0 to (mebibyte / read_block) - 1 do
            let pos = block * read_block in
            Bytes.set_int64_ne data pos
              (Int64.of_int (((number * mebibyte) + pos) / read_block))
          done;
          write 0
        done;
        Unix.fsync fd)

  let wrong pos = failwith (Printf.sprintf "wrong data at %d" pos)

  let check buffer ~pos =
    if Int64.to_int (get64 buffer 0) <> pos / read_block then wrong pos

  let check_bytes bytes ~pos =
    if Int64.to_int (Bytes.get_int64_ne bytes 0) <> pos / read_block then wrong pos
end
