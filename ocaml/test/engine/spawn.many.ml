(* OCaml 5 has domains. *)
let in_domain : ((unit -> unit) -> unit) option =
  Some (fun f -> Domain.join (Domain.spawn f))
