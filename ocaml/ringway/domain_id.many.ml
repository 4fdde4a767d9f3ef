(* Domains are numbered from 0, and numbers are not reused. *)
let self () = (Domain.self () :> int)
