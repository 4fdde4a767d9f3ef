//! Random steps on a table over the null backend, with and without faults, checked against a model.
//! Ids of operations that have ended are used too.

use super::{Abandoned, BackendKind, Completion, OpId, Options, Table};
use crate::FaultPlan;
use crate::file::File;
use crate::op::{self, Operation};
use crate::queue::Backends;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// The number of an operation: its user data, its attachment and the content of its buffer.
type Number = u64;

/// After this many rounds without new operations nothing may be in flight.
const MAX_ROUNDS: usize = 10_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// Inserts this many operations (several form a chain), with this opcode and these options.
    Insert(u8, u8, u8),
    Start(usize),
    SubmitPending,
    Submit,
    ProcessEvents,
    NextDone,
    Take(usize),
    Cancel(usize),
    Abandon(usize),
    /// Every use of the id of an operation that has ended.
    Stale(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || any::<prop::sample::Index>().prop_map(|index| index.index(1 << 16));
    prop_oneof![
        4 => (1u8..4, any::<u8>(), any::<u8>())
            .prop_map(|(count, opcode, options)| Step::Insert(count, opcode, options)),
        4 => at().prop_map(Step::Start),
        2 => Just(Step::SubmitPending),
        2 => Just(Step::Submit),
        3 => Just(Step::ProcessEvents),
        1 => Just(Step::NextDone),
        3 => at().prop_map(Step::Take),
        2 => at().prop_map(Step::Cancel),
        2 => at().prop_map(Step::Abandon),
        1 => at().prop_map(Step::Stale),
    ]
}

fn plan() -> impl Strategy<Value = Option<FaultPlan>> {
    let rate = || prop_oneof![Just(0u16), 1u16..400];
    let plan = (any::<u64>(), rate(), rate(), rate(), rate(), rate()).prop_map(
        |(seed, short, errors, retryable, delay, reorder)| {
            FaultPlan::new(seed)
                .short(short)
                .errors(errors)
                .retryable(retryable)
                .delay(delay, 3)
                .reorder(reorder)
        },
    );
    prop::option::of(plan)
}

/// The state of an operation in the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// Started, not abandoned.
    Begun,
    /// Started and abandoned.
    Abandoned,
}

struct Model {
    table: Table<Number>,
    backends: Backends,
    file: File,
    /// Ids of operations that were inserted together and not started.
    chains: Vec<Vec<OpId>>,
    live: HashMap<OpId, (Number, Phase)>,
    /// Live ids, in a stable order.
    ids: Vec<OpId>,
    over: Vec<OpId>,
    /// How often each operation has ended, and a reference count that shows whether its resources
    /// were dropped or returned.
    completions: Vec<u32>,
    owned: Vec<Arc<()>>,
}

impl Model {
    fn new(plan: Option<FaultPlan>) -> Self {
        let options = Options::new().backend(BackendKind::Null);
        let options = plan.into_iter().fold(options, Options::faults);
        let (table, backends) = options.build_parts().unwrap();
        let file = File::open(if cfg!(windows) { "NUL" } else { "/dev/null" }).unwrap();
        let (chains, live, ids, over) = Default::default();
        Self {
            table,
            backends,
            file,
            chains,
            live,
            ids,
            over,
            completions: Vec::new(),
            owned: Vec::new(),
        }
    }

    fn operation(&mut self, opcode: u8, options: u8) -> (Operation, Number) {
        let number = self.completions.len() as Number;
        let owned = Arc::new(());
        let keeps = owned.clone();
        self.completions.push(0);
        self.owned.push(owned);
        let buffer = || number.to_le_bytes().repeat(8);
        let operation = match opcode % 5 {
            0 => op::nop(),
            1 => op::read(&self.file, buffer(), 0),
            2 => op::write(&self.file, buffer(), 0),
            3 => op::timeout(Duration::from_secs(3600)),
            _ => op::blocking(move || drop(keeps)),
        };
        let operation = if options & 1 != 0 { operation.exact() } else { operation };
        let operation = if options & 14 == 2 { operation.drain() } else { operation };
        let operation = if options & 48 == 16 { operation.continue_on_error() } else { operation };
        let operation = if options & 192 == 64 {
            operation.timeout(Duration::from_secs(3600))
        } else {
            operation
        };
        (operation.user_data(number), number)
    }

    /// Records the end of an operation.
    fn complete_once(&mut self, id: OpId, number: Number, of: Number) {
        assert_eq!(number, of, "{id:?} is another operation's");
        self.completions[number as usize] += 1;
        self.live.remove(&id).unwrap();
        self.ids.retain(|live| *live != id);
        self.over.push(id);
    }

    fn completed(&mut self, id: OpId, completion: Completion) {
        assert_eq!(completion.id, id);
        let (number, _) = self.live[&id];
        self.complete_once(id, completion.user_data, number);
        if let Some(buffer) = completion.into_buffer() {
            assert_eq!(
                buffer.as_slice(),
                number.to_le_bytes().repeat(8),
                "another operation's buffer"
            );
        }
    }

    fn orphans(&mut self) {
        for orphan in std::mem::take(self.table.orphans()) {
            let id = orphan.completion.id;
            assert_eq!(self.live[&id], (orphan.attachment, Phase::Abandoned));
            self.completed(id, orphan.completion);
        }
    }

    fn one(&self, at: usize) -> Option<OpId> {
        (!self.ids.is_empty()).then(|| self.ids[at % self.ids.len()])
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Insert(count, opcode, options) => {
                let mut chain = Vec::new();
                for _ in 0..count {
                    let (operation, number) = self.operation(opcode, options);
                    let id = self.table.insert(operation, number).unwrap();
                    assert_eq!(self.live.insert(id, (number, Phase::New)), None, "an id twice");
                    assert!(!self.over.contains(&id), "an id again");
                    self.ids.push(id);
                    chain.push(id);
                }
                self.chains.push(chain);
            }
            Step::Start(_) if self.chains.is_empty() => {}
            Step::Start(at) => {
                let mut chain = self.chains.swap_remove(at % self.chains.len());
                // Some were abandoned.
                chain.retain(|id| self.live.contains_key(id));
                for id in &chain {
                    self.live.get_mut(id).unwrap().1 = Phase::Begun;
                }
                match chain[..] {
                    [one] => self.table.start(one),
                    _ => self.table.start_chain(&chain),
                }
            }
            Step::SubmitPending => self.table.submit_pending(&mut self.backends),
            Step::Submit => self.backends.submit().unwrap(),
            Step::ProcessEvents => {
                self.table.process_events(&mut self.backends);
                self.orphans();
            }
            Step::NextDone => {
                if let Some(id) = self.table.next_done() {
                    assert_eq!(self.live[&id].1, Phase::Begun, "it is abandoned");
                }
            }
            Step::Take(at) => {
                let Some(id) = self.one(at) else { return };
                if let Some(completion) = self.table.take(id) {
                    assert_eq!(self.live[&id].1, Phase::Begun);
                    self.completed(id, completion);
                }
            }
            Step::Cancel(at) => {
                let Some(id) = self.one(at) else { return };
                let cancelled = self.table.cancel(&mut self.backends, id);
                assert!(!cancelled || self.live[&id].1 != Phase::New);
                self.orphans();
            }
            Step::Abandon(at) => {
                let Some(id) = self.one(at) else { return };
                let (number, phase) = self.live[&id];
                match self.table.abandon(id).unwrap() {
                    Abandoned::New(operation, attachment) => {
                        assert_eq!((phase, operation.user_data), (Phase::New, number));
                        self.complete_once(id, attachment, number);
                    }
                    Abandoned::Done(completion, attachment) => {
                        assert_eq!((phase, attachment), (Phase::Begun, number));
                        self.completed(id, completion);
                    }
                    Abandoned::InFlight => {
                        assert_ne!(phase, Phase::New);
                        self.live.get_mut(&id).unwrap().1 = Phase::Abandoned;
                    }
                }
            }
            Step::Stale(_) if self.over.is_empty() => {}
            Step::Stale(at) => {
                let id = self.over[at % self.over.len()];
                let (table, backends) = (&mut self.table, &mut self.backends);
                assert!(
                    table.attachment(id).is_none()
                        && table.operation(id).is_none()
                        && table.is_new(id).is_none()
                );
                assert!(
                    table.take(id).is_none()
                        && table.abandon(id).is_none()
                        && !table.cancel(backends, id)
                );
                table.start(id);
                table.start_chain(&[id]);
            }
        }
    }

    /// The table agrees with the model.
    fn look(&mut self) {
        self.table.check();
        let counts = self.table.counts();
        let over = self.completions.iter().map(|completions| u64::from(*completions)).sum::<u64>();
        assert_eq!(
            (counts.pushed, counts.in_flight),
            (self.completions.len() as u64, self.live.len() as u64)
        );
        assert_eq!(counts.delivered + counts.orphaned, over);
        for (id, (number, phase)) in &self.live {
            assert_eq!(self.table.is_new(*id), Some(*phase == Phase::New));
            assert_eq!(self.table.attachment(*id).copied(), Some(*number));
        }
    }

    /// Starts and completes all operations, and takes their results.
    fn finish(mut self) {
        while !self.chains.is_empty() {
            self.step(Step::Start(0));
        }
        for _ in 0..MAX_ROUNDS {
            for step in [Step::SubmitPending, Step::Submit, Step::ProcessEvents] {
                self.step(step);
            }
            for at in (0..self.ids.len()).rev() {
                self.step(Step::Take(at));
            }
            if self.live.is_empty() {
                break;
            }
        }
        self.look();
        assert!(self.live.is_empty(), "{:?} are never done", self.live);
        self.table.shut_down(&mut self.backends, Duration::ZERO);
        assert!(self.table.is_shut_down);
        assert!(
            self.completions.iter().all(|completions| *completions == 1),
            "{:?}",
            self.completions
        );
        assert!(
            self.owned.iter().all(|owned| Arc::strong_count(owned) == 1),
            "a closure was not dropped"
        );
    }
}

proptest! {
    #[test]
    fn every_operation_ends_once(
        plan in plan(),
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let mut model = Model::new(plan);
        for step in steps {
            model.step(step);
            model.look();
        }
        model.finish();
    }

    /// The table may be shut down at any point: each operation in flight is completed or freed
    /// once.
    #[test]
    fn a_table_may_be_shut_down_at_any_point(
        plan in plan(),
        steps in proptest::collection::vec(step(), 1..100),
    ) {
        let mut model = Model::new(plan);
        for step in steps { model.step(step); }
        model.table.shut_down(&mut model.backends, Duration::from_secs(60));
        prop_assert!(model.table.is_shut_down);
        model.table.check();
        drop(model.table);
        prop_assert!(model.owned.iter().all(|owned| Arc::strong_count(owned) == 1));
    }
}
