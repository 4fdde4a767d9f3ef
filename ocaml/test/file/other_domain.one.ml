let run f =
  let result = ref (Ok ()) in
  Thread.join (Thread.create (fun () -> try f () with exn -> result := Error exn) ());
  match !result with Ok () -> () | Error exn -> raise exn
