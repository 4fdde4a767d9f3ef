(* OCaml 4 has one domain. *)
type 'a t = 'a Lazy.t ref

let create initial = ref (Lazy.from_fun initial)
let get t = Lazy.force !t
let set t value = t := Lazy.from_val value
