(* Two of the OCaml manual's rules for C code, checked in the sources of the stubs, because a stub
   that breaks them rarely fails: nothing of OCaml is used between releasing the runtime lock and
   acquiring it, and [@@noalloc] stubs neither allocate nor raise nor release the lock. A function
   that a stub calls counts if it is in the same file. Usage: stub_rules FILE.c... FILE.ml... *)

let read path =
  let channel = open_in_bin path in
  let text = really_input_string channel (in_channel_length channel) in
  close_in channel;
  text

let without_comments = Str.global_replace (Str.regexp "/\\*\\([^*]\\|\\*+[^*/]\\)*\\*+/") ""
let name = Str.regexp "[A-Za-z_][A-Za-z_0-9]*"

(* All matches of [regexp]. *)
let rec matches ?(from = 0) regexp text =
  match Str.search_forward regexp text from with
  | exception Not_found -> []
  | _ ->
      let found = Str.matched_string text and next = Str.match_end () in
      found :: matches ~from:next regexp text

(* The functions of a C file, with their bodies. A body ends at the first brace in column 0. *)
let functions source =
  List.filter_map
    (fun part ->
      match Str.bounded_split_delim (Str.regexp "^{$") part 2 with
      | [ head; body ] ->
          let head = Str.global_replace (Str.regexp "__attribute__((.*))") "" head in
          let called = matches (Str.regexp "[A-Za-z_][A-Za-z_0-9]*(") head in
          let last = List.nth_opt (List.rev called) 0 in
          Option.map (fun last -> (String.sub last 0 (String.length last - 1), body)) last
      | _ -> None)
    (Str.split (Str.regexp "^}$") (without_comments source))

(* The text with the bodies of all functions that it names, except what it is [inside] of. *)
let rec expanded functions inside text =
  let named = List.filter (fun (f, _) -> not (List.mem f inside)) functions in
  let words = matches name text in
  List.filter (fun (f, _) -> List.mem f words) named
  |> List.map (fun (f, body) -> expanded functions (f :: inside) body)
  |> List.cons text |> String.concat "\n"

let failures = ref 0

let forbid what regexp text =
  match matches (Str.regexp regexp) text with
  | [] -> ()
  | first :: _ ->
      incr failures;
      Printf.printf "%s: %s\n" what first

let released = Str.regexp "caml_release_runtime_system();"
let acquired = Str.regexp "caml_acquire_runtime_system();"

let check_lock functions (f, body) =
  match Str.bounded_split_delim released body 2 with
  | [ _; after ] ->
      let without_lock = List.hd (Str.bounded_split_delim acquired after 2) in
      forbid (f ^ " without the runtime lock") "Field(\\|[A-Za-z]_val(\\|Val_\\|caml_\\|CAML"
        (expanded functions [ f ] without_lock);
      1
  | _ -> 0

(* The stubs that the file declares [@@noalloc]. *)
let noalloc source =
  Str.split (Str.regexp "^\\(external\\|let\\|type\\|module\\|exception\\) ") source
  |> List.filter (fun part -> matches (Str.regexp_string "[@@noalloc]") part <> [])
  |> List.concat_map (matches (Str.regexp "ringway_[a-z_0-9]+"))

let check_noalloc functions stub =
  match List.assoc_opt stub functions with
  | None -> 0
  | Some body ->
      let forbidden =
        "caml_alloc\\|caml_copy\\|caml_raise\\|caml_failwith\\|caml_invalid\\|caml_callback"
        ^ "\\|caml_release\\|caml_acquire\\|caml_process\\|unix_error\\|uerror\\|CAMLparam"
      in
      forbid (stub ^ " is [@@noalloc]") forbidden (expanded functions [ stub ] body);
      1

let () =
  let files = List.tl (Array.to_list Sys.argv) in
  let c, ml = List.partition (fun file -> Filename.check_suffix file ".c") files in
  let sum f list = List.fold_left (fun total x -> total + f x) 0 list in
  let stubs = List.concat_map (fun file -> noalloc (read file)) ml in
  let per_file file =
    let functions = functions (read file) in
    (sum (check_lock functions) functions, sum (check_noalloc functions) stubs)
  in
  let counts = List.map per_file c in
  let releasing = sum fst counts and checked = sum snd counts in
  Printf.printf "%d stubs that release the lock, %d [@@noalloc] ones\n" releasing checked;
  (* A parser that finds none would pass. *)
  if checked <> List.length stubs || releasing = 0 then failwith "stubs were not found";
  if !failures > 0 then exit 1
