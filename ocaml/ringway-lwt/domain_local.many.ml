type 'a t = 'a Domain.DLS.key

let create initial = Domain.DLS.new_key initial
let get = Domain.DLS.get
let set = Domain.DLS.set
