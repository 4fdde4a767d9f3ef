open Ringway

type t = { fd : Unix.file_descr }

let openfile path flags perm =
  Promise.run "open" path
    (Operation.openat path ~flags:(Operation.open_flags flags) ~perm)
    (fun fd -> { fd = Operation.descriptor_of_result fd })
    ~on_unwanted:(fun fd -> Unix.close (Operation.descriptor_of_result fd))

let pread t buffer ~pos off len =
  let read = if Dispatcher.spend (Dispatcher.current ()) len then Page_cache.read t.fd buffer ~off ~len ~pos else -1 in
  if read >= 0 then Lwt.return read
  else
    let had = -read - 1 in
    Promise.run "pread" "" (Operation.read t.fd buffer ~off:(off + had) ~len:(len - had) ~pos:(pos + had))
      (fun more -> had + more)

let close t = Promise.run "close" "" (Operation.close t.fd) ignore
