type Lwt_engine.engine_id += Ringway

class virtual base =
  object
    inherit Lwt_engine.abstract
    method id = Ringway
  end
