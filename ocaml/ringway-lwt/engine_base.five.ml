class virtual base =
  object
    inherit Lwt_engine.abstract
  end
