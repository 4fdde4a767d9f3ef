external now_ns : unit -> (int[@untagged]) = "ringway_lwt_now_byte" "ringway_lwt_now" [@@noalloc]
