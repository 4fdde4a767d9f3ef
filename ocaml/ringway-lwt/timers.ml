type timer = {
  mutable time : int;
  (* Orders timers of equal time. *)
  mutable order : int;
  (* Negative: once. *)
  period : int;
  delay : float;
  callback : unit -> unit;
  mutable successor : Lwt_engine.event;
  (* In the heap; -1: not there. *)
  mutable position : int;
  mutable removed : bool;
}

type t = {
  (* The children of heap.(i) are heap.(2i + 1) and heap.(2i + 2). *)
  mutable heap : timer array;
  mutable count : int;
  mutable next_order : int;
  (* Timers that [run] has taken out of the heap and not called. *)
  due : timer Queue.t;
}

let never = max_int

let no_timer =
  {
    time = never;
    order = 0;
    period = -1;
    delay = 0.;
    callback = ignore;
    successor = Lwt_engine.fake_event;
    position = -1;
    removed = true;
  }

let create () = { heap = [||]; count = 0; next_order = 0; due = Queue.create () }

let before a b = a.time < b.time || (a.time = b.time && a.order < b.order)

let place t i timer =
  t.heap.(i) <- timer;
  timer.position <- i

let rec up t i timer =
  let parent = (i - 1) / 2 in
  if i > 0 && before timer t.heap.(parent) then begin
    place t i t.heap.(parent);
    up t parent timer
  end
  else place t i timer

let rec down t i timer =
  let left = (2 * i) + 1 in
  let right = left + 1 in
  let least = if right < t.count && before t.heap.(right) t.heap.(left) then right else left in
  if least < t.count && before t.heap.(least) timer then begin
    place t i t.heap.(least);
    down t least timer
  end
  else place t i timer

(* A finaliser may insert a timer while OCaml allocates, and make the heap longer. *)
let rec make_room t =
  if t.count = Array.length t.heap then begin
    let longer = Array.make (max 16 (2 * t.count)) no_timer in
    if Array.length longer > Array.length t.heap then begin
      Array.blit t.heap 0 longer 0 t.count;
      t.heap <- longer
    end;
    make_room t
  end

let insert t timer =
  make_room t;
  timer.order <- t.next_order;
  t.next_order <- t.next_order + 1;
  t.count <- t.count + 1;
  up t (t.count - 1) timer

let add t ~time ~period ~delay callback =
  let timer = { no_timer with time; period; delay; callback; removed = false } in
  insert t timer;
  timer

let take_out t timer =
  let i = timer.position in
  if i >= 0 then begin
    let last = t.heap.(t.count - 1) in
    t.count <- t.count - 1;
    t.heap.(t.count) <- no_timer;
    timer.position <- -1;
    if last != timer then
      if i > 0 && before last t.heap.((i - 1) / 2) then up t i last else down t i last
  end

let remove t timer =
  timer.removed <- true;
  take_out t timer;
  Lwt_engine.stop_event timer.successor

let rec move t register =
  let timers = Array.sub t.heap 0 t.count in
  Array.sort (fun a b -> if a == b then 0 else if before a b then -1 else 1) timers;
  Seq.iter
    (fun timer ->
      if not timer.removed then begin
        timer.removed <- true;
        take_out t timer;
        timer.successor <- register timer.delay (timer.period >= 0) timer.callback
      end)
    (Seq.append (Queue.to_seq t.due) (Array.to_seq timers));
  (* Those that a finaliser has added meanwhile. *)
  if t.count > 0 then move t register

let next t = if t.count = 0 then never else t.heap.(0).time

(* All that are due are taken out first: what callbacks add waits for the next [run]. *)
let rec collect t now =
  if t.count > 0 && t.heap.(0).time <= now then begin
    let timer = t.heap.(0) in
    Queue.add timer t.due;
    take_out t timer;
    collect t now
  end

(* The first time of the rhythm after [now]; one without a period is due in each [run]. *)
let next_time timer now =
  if timer.period = 0 then now
  else if timer.period > never - timer.time then never
  else
    let next = timer.time + timer.period in
    if next > now then next else next + ((((now - next) / timer.period) + 1) * timer.period)

let rec call_due t now call =
  match Queue.take_opt t.due with
  | None -> ()
  | Some timer ->
      if not timer.removed then begin
        if timer.period >= 0 then begin
          timer.time <- next_time timer now;
          insert t timer
        end;
        call timer.callback
      end;
      call_due t now call

let run t ~now call =
  collect t now;
  call_due t now call

let pending t = not (Queue.is_empty t.due)
