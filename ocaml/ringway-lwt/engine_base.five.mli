(** What an engine inherits. This is for Lwt 5. *)

class virtual base : object
  inherit Lwt_engine.abstract
end
