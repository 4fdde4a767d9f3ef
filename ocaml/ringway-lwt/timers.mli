(** The timers of the engine: a binary heap ordered by time, with removal of any timer. Knows no
    clock; times are in nanoseconds of the caller's. *)

type t
type timer

val create : unit -> t

val never : int
(** A time that is never reached. *)

val add : t -> time:int -> period:int -> delay:float -> (unit -> unit) -> timer
(** [add t ~time ~period ~delay callback] adds a timer that is due at [time]; if [period] is not
    negative, again each [period] after that. [delay] is kept for {!move}. *)

val remove : t -> timer -> unit
(** The timer is not called any more, also if {!run} is about to call it, or if it was moved. Does
    nothing the second time. *)

val move : t -> (float -> bool -> (unit -> unit) -> Lwt_engine.event) -> unit
(** [move t register] takes all timers out and applies [register] to the delay of each, to whether
    it repeats, and to its callback. {!remove} stops the event that [register] has returned. *)

val next : t -> int
(** The time at which the next timer is due; {!never} if there is none. *)

val run : t -> now:int -> ((unit -> unit) -> unit) -> unit
(** [run t ~now call] applies [call] to the callbacks of all timers that are due at [now], by time,
    those of equal time in the order in which they were added. Timers that callbacks add are not
    among them. A repeating timer that is late keeps its rhythm: it is due again at the first of its
    times after [now], not once for each period that was missed. One with a period of 0 is due again
    at [now].

    If [call] raises, [run] raises the same, and the next {!run} calls the rest. *)

val pending : t -> bool
(** [call] has raised in {!run}, which has left timers that are due. *)
