open Ringway

let run name path operation finish =
  match operation () with
  | exception Invalid_argument _ -> Lwt.fail (Unix.Unix_error (ENOENT, name, path))
  | operation -> Promise.run name path operation finish

let statx name flags decode path =
  let buffer = Buffer_pool.take Stat.buffer_size in
  match Operation.statx path ~flags ~mask:Stat.basic buffer with
  | exception Invalid_argument _ ->
      Buffer_pool.give buffer;
      Lwt.fail (Unix.Unix_error (ENOENT, name, path))
  | operation ->
      Promise.run
        ~on_end:(fun () -> Buffer_pool.give buffer)
        name path operation
        (fun _ -> decode buffer)

let stat path = statx "stat" 0 Stat.stats path
let lstat path = statx "lstat" Stat.no_follow Stat.stats path
let large_stat path = statx "stat" 0 Stat.large path
let large_lstat path = statx "lstat" Stat.no_follow Stat.large path

let exists path =
  Lwt.try_bind
    (fun () -> large_stat path)
    (fun _ -> Lwt.return_true)
    (function Unix.Unix_error _ -> Lwt.return_false | exn -> Lwt.fail exn)

let rename path new_path = run "rename" path (fun () -> Operation.rename path new_path) ignore
let unlink path = run "unlink" path (fun () -> Operation.unlink path) ignore
let link path new_path = run "link" path (fun () -> Operation.link path new_path) ignore
let symlink target path = run "symlink" target (fun () -> Operation.symlink ~target path) ignore

let mkdir path perm =
  run "mkdir" path (fun () -> Operation.mkdir path ~perm:(perm land 0o7777)) ignore

let rmdir path = run "rmdir" path (fun () -> Operation.rmdir path) ignore
