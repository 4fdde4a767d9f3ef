(* Runs a function in another domain, which OCaml 5 has. *)
let run f = Domain.join (Domain.spawn f)
