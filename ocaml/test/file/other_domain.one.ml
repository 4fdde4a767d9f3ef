(* Runs a function in another thread: OCaml 4 has one domain. *)
let run f =
  let result = ref (Ok ()) in
  Thread.join (Thread.create (fun () -> try f () with exn -> result := Error exn) ());
  match !result with Ok () -> () | Error exn -> raise exn
