(* OCaml 5. *)
let run = Some (fun f -> Domain.join (Domain.spawn f))
