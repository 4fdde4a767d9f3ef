(* OCaml 4 has no domains. *)
let in_domain : ((unit -> unit) -> unit) option = None
