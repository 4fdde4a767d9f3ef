//! Guarantees 1 to 10 through the Rust API: one list of cases, run on each backend with each
//! executor. The number in the name of a case is that of its guarantee.

mod cases;

use crate::common::executor::{Executor, Work};
use crate::common::setup::Setup;
use crate::common::watchdog::Watchdog;
use crate::common::{PAGE, is_available};
use ringway::{BackendKind, EngineBuilder, FaultPlan};
use std::panic::{AssertUnwindSafe, catch_unwind};

struct Case {
    name: &'static str,
    run: fn(Setup) -> Work,
    engine: fn(EngineBuilder) -> EngineBuilder,
}

macro_rules! tests {
    ($($name:ident $(on $engine:expr)?,)*) => {
        $(#[test]
        fn $name() {
            on_each_backend_and_executor(&Case {
                name: stringify!($name),
                run: |setup| Box::pin(cases::$name(setup)),
                engine: tests!(@ $($engine)?),
            });
        })*
    };
    (@) => { |builder| builder };
    (@ $engine:expr) => { $engine };
}

tests! {
    one_dropped_transfers_keep_their_memory,
    one_a_dropped_pooled_read_touches_no_other_memory,
    one_late_pooled_buffers_return_once on |builder| {
        builder.fixed_buffers(4 * PAGE, 4).faults(FaultPlan::new(8).delay(500, 3).reorder(300))
    },
    one_dropped_files_stay_open_for_the_kernel,
    three_a_dropped_read_consumes_nothing,
    three_a_dropped_open_leaves_nothing_open,
    three_dropping_at_any_poll,
    four_every_submission_is_answered_once,
    four_a_late_completion_reaches_no_other_operation,
    five_results_match_the_kernel,
    five_errors_match_the_kernel,
    six_short_transfers_are_continued on |builder| {
        builder.faults(FaultPlan::new(6).short(500).retryable(200).delay(200, 3).reorder(300))
    },
    seven_no_wakeup_is_lost,
    seven_tasks_wake_each_other,
    seven_a_future_may_move_to_another_task,
    seven_a_backend_that_fails_at_once on |builder| builder.faults(FaultPlan::new(0).enters(0)),
    seven_a_backend_that_fails_later on |builder| {
        builder.shards(1).faults(FaultPlan::new(0).enters(5))
    },
    eight_a_completion_frees_its_slot on |builder| {
        builder.shards(1).in_flight(4).in_flight_pipes(2)
    },
    nine_the_engine_explains_itself,
}

const EXECUTORS: [Executor; 6] = [
    Executor::TokioThreads,
    Executor::TokioCurrent,
    Executor::TokioLocal,
    Executor::Smol,
    Executor::BlockOn,
    Executor::OwnLoop,
];

fn on_each_backend_and_executor(case: &Case) {
    let mut failed = Vec::new();
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        if !is_available(kind) {
            continue;
        }
        for executor in EXECUTORS {
            let name = format!("{kind} {executor:?} {}", case.name);
            let _watch = Watchdog::new(&name);
            let run_case = || Setup::new(kind, executor, case.engine).run(case.run);
            if catch_unwind(AssertUnwindSafe(run_case)).is_err() {
                println!("FAILED {name}");
                failed.push(name);
            }
        }
    }
    assert!(failed.is_empty(), "{failed:#?}");
}
