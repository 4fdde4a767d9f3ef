(* Prints the OCaml blocks of docs/ocaml.md as one module: a functor for each block, whose errors
   dune reports by the lines of the page, and a table of them for Run. The page is looked for in
   RINGWAY_DOCS, or docs/ in a directory above this one. *)

let rec above directory =
  let candidate = Filename.concat (Filename.concat directory "docs") "ocaml.md" in
  let parent = Filename.dirname directory in
  if Sys.file_exists candidate then Some candidate
  else if parent = directory then None
  else above parent

let page =
  match Sys.getenv_opt "RINGWAY_DOCS" with
  | Some directory -> Some (Filename.concat directory "ocaml.md")
  | None -> above (Sys.getcwd ())

let rec lines_of channel =
  match input_line channel with
  | line -> line :: lines_of channel
  | exception End_of_file -> []

(* The lines at which blocks begin. *)
let print_blocks lines =
  let _, blocks =
    List.fold_left
      (fun (number, blocks) line ->
        (match (line, blocks) with
        | "```ocaml", _ ->
            Printf.printf "module Block_%d () = struct\n" number;
            Printf.printf "# %d \"docs/ocaml.md\"\n" (number + 1)
        | "```", (_, true) :: _ -> print_endline "end"
        | _, (_, true) :: _ -> print_endline line
        | _ -> ());
        let blocks =
          match (line, blocks) with
          | "```ocaml", _ -> (number, true) :: blocks
          | "```", (first, true) :: rest -> (first, false) :: rest
          | _ -> blocks
        in
        (number + 1, blocks))
      (1, []) lines
  in
  List.rev_map fst blocks

let () =
  match page with
  | None ->
      (* Where CI is set, a skip is a failure. *)
      print_endline
        "let () =\n\
        \  print_endline \"skipped: docs/ocaml.md is not here\";\n\
        \  if Sys.getenv_opt \"CI\" <> None then exit 1"
  | Some page ->
      let channel = open_in page in
      let blocks = print_blocks (lines_of channel) in
      close_in channel;
      print_endline "let () =\n  Run.blocks\n    [";
      List.iter
        (fun number ->
          Printf.printf "      (%d, fun () -> let module _ = Block_%d () in ());\n" number number)
        blocks;
      print_endline "    ]"
