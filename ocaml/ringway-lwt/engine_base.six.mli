(** What an engine inherits. This is for Lwt 6.1, in which engines have an identity. *)

class virtual base : object
  inherit Lwt_engine.abstract
  method id : Lwt_engine.engine_id
end
