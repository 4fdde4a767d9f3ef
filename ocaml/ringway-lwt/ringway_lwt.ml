(* The modules of the library that are public. *)

module Engine = Engine
module File = File
module Path = Path
module Io = Io
module Reader = Reader
module Writer = Writer
module Tcp = Tcp
module Unix = Files_unix
module Dispatcher = Dispatcher
module Promise = Promise
module Clock = Clock
