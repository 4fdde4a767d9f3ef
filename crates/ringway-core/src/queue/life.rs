//! The life of an operation in its slot, on the null backend with and without faults, against a
//! model: random steps of many operations, with ids whose life is over among them.

use super::{BackendKind, Completion, GivenUp, OpId, Options, Table};
use crate::FaultPlan;
use crate::file::File;
use crate::op::{self, Operation};
use crate::queue::Backends;
use proptest::prelude::*;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// An operation's number: in its user data, its attachment and its buffer.
type Number = u64;

/// Rounds after which nothing is in flight, if nothing new comes.
const ENOUGH: usize = 10_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    /// So many operations, as a chain if there are several, of these kinds and options.
    Insert(u8, u8, u8),
    Start(usize),
    Carry,
    Submit,
    SortOut,
    NextDone,
    Take(usize),
    Cancel(usize),
    GiveUp(usize),
    /// Everything that an id whose life is over could be used for.
    Stale(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let at = || any::<prop::sample::Index>().prop_map(|index| index.index(1 << 16));
    prop_oneof![
        4 => (1u8..4, any::<u8>(), any::<u8>()).prop_map(|(count, kind, options)| Step::Insert(count, kind, options)),
        4 => at().prop_map(Step::Start),
        2 => Just(Step::Carry),
        2 => Just(Step::Submit),
        3 => Just(Step::SortOut),
        1 => Just(Step::NextDone),
        3 => at().prop_map(Step::Take),
        2 => at().prop_map(Step::Cancel),
        2 => at().prop_map(Step::GiveUp),
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

/// Where the model has an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    New,
    /// Started, and waited for.
    Begun,
    /// Started, and given up.
    Abandoned,
}

struct Life {
    table: Table<Number>,
    backends: Backends,
    file: File,
    /// Ids of operations that were inserted together and have not been started.
    chains: Vec<Vec<OpId>>,
    live: HashMap<OpId, (Number, Phase)>,
    /// Live ids, in a stable order.
    ids: Vec<OpId>,
    over: Vec<OpId>,
    /// What became of each operation, and what shows that what it owned was dropped or returned.
    outcomes: Vec<u32>,
    owned: Vec<Arc<()>>,
}

impl Life {
    fn new(plan: Option<FaultPlan>) -> Self {
        let options = Options::new().backend(BackendKind::Null);
        let options = plan.into_iter().fold(options, Options::faults);
        let (table, backends) = options.build_halves().unwrap();
        let file = File::open("/dev/null").unwrap();
        let (chains, live, ids, over) = Default::default();
        Self {
            table,
            backends,
            file,
            chains,
            live,
            ids,
            over,
            outcomes: Vec::new(),
            owned: Vec::new(),
        }
    }

    fn operation(&mut self, kind: u8, options: u8) -> (Operation, Number) {
        let number = self.outcomes.len() as Number;
        let owned = Arc::new(());
        let keeps = owned.clone();
        self.outcomes.push(0);
        self.owned.push(owned);
        let buffer = || number.to_le_bytes().repeat(8);
        let operation = match kind % 5 {
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

    /// The one outcome of an operation.
    fn outcome(&mut self, id: OpId, number: Number, of: Number) {
        assert_eq!(number, of, "{id:?} is another operation's");
        self.outcomes[number as usize] += 1;
        self.live.remove(&id).unwrap();
        self.ids.retain(|live| *live != id);
        self.over.push(id);
    }

    fn completed(&mut self, id: OpId, completion: Completion) {
        assert_eq!(completion.id, id);
        let (number, _) = self.live[&id];
        self.outcome(id, completion.user_data, number);
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
            Step::Insert(count, kind, options) => {
                let mut chain = Vec::new();
                for _ in 0..count {
                    let (operation, number) = self.operation(kind, options);
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
                // Some have been given up.
                chain.retain(|id| self.live.contains_key(id));
                chain.iter().for_each(|id| self.live.get_mut(id).unwrap().1 = Phase::Begun);
                match chain[..] {
                    [one] => self.table.start(one),
                    _ => self.table.start_chain(&chain),
                }
            }
            Step::Carry => self.table.carry(&mut self.backends),
            Step::Submit => self.backends.submit().unwrap(),
            Step::SortOut => {
                self.table.sort_out(&mut self.backends);
                self.orphans();
            }
            Step::NextDone => {
                if let Some(id) = self.table.next_done() {
                    assert_eq!(self.live[&id].1, Phase::Begun, "nobody waits for it");
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
            Step::GiveUp(at) => {
                let Some(id) = self.one(at) else { return };
                let (number, phase) = self.live[&id];
                match self.table.give_up(id).unwrap() {
                    GivenUp::New(operation, attachment) => {
                        assert_eq!((phase, operation.user_data), (Phase::New, number));
                        self.outcome(id, attachment, number);
                    }
                    GivenUp::Done(completion, attachment) => {
                        assert_eq!((phase, attachment), (Phase::Begun, number));
                        self.completed(id, completion);
                    }
                    GivenUp::InFlight => {
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
                        && table.give_up(id).is_none()
                        && !table.cancel(backends, id)
                );
                table.start(id);
                table.start_chain(&[id]);
            }
        }
    }

    /// What the table says agrees with the model.
    fn look(&mut self) {
        self.table.check();
        let counts = self.table.counts();
        let over = self.outcomes.iter().map(|outcomes| u64::from(*outcomes)).sum::<u64>();
        assert_eq!(
            (counts.pushed, counts.in_flight),
            (self.outcomes.len() as u64, self.live.len() as u64)
        );
        assert_eq!(counts.delivered + counts.orphaned, over);
        for (id, (number, phase)) in &self.live {
            assert_eq!(self.table.is_new(*id), Some(*phase == Phase::New));
            assert_eq!(self.table.attachment(*id).copied(), Some(*number));
        }
    }

    /// Everything is started, completes and is taken.
    fn finish(mut self) {
        while !self.chains.is_empty() {
            self.step(Step::Start(0));
        }
        for _ in 0..ENOUGH {
            for step in [Step::Carry, Step::Submit, Step::SortOut] {
                self.step(step);
            }
            (0..self.ids.len()).rev().for_each(|at| self.step(Step::Take(at)));
            if self.live.is_empty() {
                break;
            }
        }
        self.look();
        assert!(self.live.is_empty(), "{:?} are never done", self.live);
        self.table.shut_down(&mut self.backends, Duration::ZERO);
        assert!(self.table.is_over);
        assert!(self.outcomes.iter().all(|outcomes| *outcomes == 1), "{:?}", self.outcomes);
        assert!(
            self.owned.iter().all(|owned| Arc::strong_count(owned) == 1),
            "a closure is left over"
        );
    }
}

proptest! {
    #[test]
    fn every_operation_has_one_outcome(plan in plan(), steps in proptest::collection::vec(step(), 1..300)) {
        let mut life = Life::new(plan);
        for step in steps {
            life.step(step);
            life.look();
        }
        life.finish();
    }

    /// It ends at any point: what is in flight is told or freed once.
    #[test]
    fn it_may_end_at_any_point(plan in plan(), steps in proptest::collection::vec(step(), 1..100)) {
        let mut life = Life::new(plan);
        steps.into_iter().for_each(|step| life.step(step));
        life.table.shut_down(&mut life.backends, Duration::from_secs(60));
        prop_assert!(life.table.is_over);
        life.table.check();
        drop(life.table);
        prop_assert!(life.owned.iter().all(|owned| Arc::strong_count(owned) == 1));
    }
}
