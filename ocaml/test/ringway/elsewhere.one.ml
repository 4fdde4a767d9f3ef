(* OCaml 4 has one domain. *)
let run = None
