let on = ref (Sys.getenv_opt "RW_RING" <> None)
let installed () = !on
