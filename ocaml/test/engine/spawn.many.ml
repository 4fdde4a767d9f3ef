let in_domain : ((unit -> unit) -> unit) option =
  Some (fun f -> Domain.join (Domain.spawn f))
