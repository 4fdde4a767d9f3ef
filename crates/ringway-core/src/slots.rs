//! The states of an operation in flight, as pure data: no system calls, no addresses.
//!
//! A slot is free, new, held (behind another operation), pending, submitted (a backend has it) or
//! done, in that order; a submitted slot becomes pending again for a retry or the next piece. Slots
//! have generations, so a stale completion is never attributed to another operation. The counters
//! always satisfy: pushed = delivered + orphaned + in flight.

use std::num::NonZeroU32;

/// Identifies one use of a slot, and a piece of its operation. It is the user data of requests to
/// the kernel.
///
/// Bits: 32 generation, 8 piece, 24 index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token(pub u64);

/// The most slots of a queue; the index after the last is for a backend's internal requests.
pub(crate) const MAX_SLOTS: u32 = (1 << 24) - 1;

impl Token {
    pub fn new(key: Key, piece: u8) -> Self {
        Self(u64::from(key.generation.get()) << 32 | u64::from(piece) << 24 | u64::from(key.index))
    }

    /// The token of a backend's internal request, which belongs to no slot.
    pub const fn internal(number: u8) -> Self {
        Self((number as u64) << 24 | MAX_SLOTS as u64)
    }

    /// This internal token with a number of 32 bits, such as that of a slot.
    pub fn with_number(self, number: u32) -> Self {
        debug_assert!(self.is_internal() && self.number() == 0);
        Self(u64::from(number) << 32 | self.0)
    }

    /// The number of [`with_number`](Self::with_number).
    pub fn number(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The token before [`with_number`](Self::with_number).
    pub fn without_number(self) -> Self {
        Self(self.0 & 0xffff_ffff)
    }

    pub fn is_internal(self) -> bool {
        self.index() == MAX_SLOTS
    }

    pub fn index(self) -> u32 {
        (self.0 & 0xff_ffff) as u32
    }

    /// All but the generation.
    pub fn low(self) -> u32 {
        self.0 as u32
    }

    pub fn piece(self) -> u8 {
        (self.0 >> 24) as u8
    }

    pub fn key(self) -> Option<Key> {
        let generation = NonZeroU32::new((self.0 >> 32) as u32)?;
        Some(Key { index: self.index(), generation })
    }
}

/// One use of a slot: the generation changes each time the slot is freed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub index: u32,
    pub generation: NonZeroU32,
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotState {
    /// Not in use.
    Free,
    /// Filled; its owner has not started it.
    New,
    /// Started, but waiting for another operation.
    Held,
    /// Waiting to be passed to a backend, in whole or with further pieces.
    Pending,
    /// Passed to a backend, with no further piece to pass for now.
    Submitted,
    /// The result is known.
    Done,
}

#[derive(Debug)]
struct Slot<T> {
    generation: NonZeroU32,
    state: SlotState,
    next_free: Option<u32>,
    value: T,
}

/// Slots are allocated in chunks of this many, and never move.
const CHUNK: u32 = 256;

/// The slots of a queue.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    chunks: Vec<Vec<Slot<T>>>,
    /// Slots in all chunks together.
    len: u32,
    cap: u32,
    free: Option<u32>,
    in_flight: u32,
    pushed: u64,
    delivered: u64,
    orphaned: u64,
}

/// Counts of operations: pushed = delivered + orphaned + in flight, at any moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Operations that were pushed.
    pub pushed: u64,
    /// Operations whose completion was delivered.
    pub delivered: u64,
    /// Operations that were abandoned before their completion
    /// ([`Queue::abandon`](crate::Queue::abandon), close).
    pub orphaned: u64,
    /// Operations that were pushed and are neither delivered nor orphaned.
    pub in_flight: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.pushed += other.pushed;
        self.delivered += other.delivered;
        self.orphaned += other.orphaned;
        self.in_flight += other.in_flight;
    }
}

impl<T: Default> Slots<T> {
    /// Slots for at most `cap` operations at a time. Memory is allocated as it is needed, and a
    /// slot's address never changes.
    pub fn new(cap: u32) -> Self {
        let cap = cap.clamp(1, MAX_SLOTS);
        Self {
            chunks: Vec::new(),
            len: 0,
            cap,
            free: None,
            in_flight: 0,
            pushed: 0,
            delivered: 0,
            orphaned: 0,
        }
    }

    /// Bytes of one slot.
    #[cfg(test)]
    pub fn slot_size() -> usize {
        size_of::<Slot<T>>()
    }

    pub fn counts(&self) -> Counts {
        Counts {
            pushed: self.pushed,
            delivered: self.delivered,
            orphaned: self.orphaned,
            in_flight: u64::from(self.in_flight),
        }
    }

    /// Slots that have been in use at the same time at most.
    #[cfg(any(test, debug_assertions))]
    pub fn allocated(&self) -> usize {
        self.len as usize
    }

    /// The number of slots.
    pub fn capacity(&self) -> usize {
        self.cap as usize
    }

    /// The number of free slots.
    pub fn free_slots(&self) -> usize {
        (self.cap - self.in_flight) as usize
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight as usize
    }

    /// Takes a free slot; `None` if there is none. The value in it is empty, and the caller
    /// overwrites it in place: operations are large, and copying them is most of what a push costs.
    #[inline(always)]
    pub fn insert(&mut self) -> Option<(Key, &mut T)> {
        let index = match self.free {
            Some(index) => index,
            None if self.len < self.cap => self.grow(),
            None => return None,
        };
        let slot = &mut self.chunks[(index / CHUNK) as usize][(index % CHUNK) as usize];
        self.free = slot.next_free.take();
        slot.state = SlotState::New;
        self.in_flight += 1;
        self.pushed += 1;
        Some((Key { index, generation: slot.generation }, &mut slot.value))
    }

    #[cold]
    fn grow(&mut self) -> u32 {
        let index = self.len;
        if index.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK.min(self.cap - index) as usize));
        }
        let value = T::default();
        let slot =
            Slot { generation: NonZeroU32::MIN, state: SlotState::Free, next_free: None, value };
        self.chunks[(index / CHUNK) as usize].push(slot);
        self.len += 1;
        index
    }

    #[inline]
    fn slot(&self, key: Key) -> Option<&Slot<T>> {
        let slot =
            self.chunks.get((key.index / CHUNK) as usize)?.get((key.index % CHUNK) as usize)?;
        (slot.generation == key.generation && slot.state != SlotState::Free).then_some(slot)
    }

    /// The state of the slot; `None` if this use of it has ended.
    pub fn state(&self, key: Key) -> Option<SlotState> {
        self.slot(key).map(|slot| slot.state)
    }

    /// Changes the state. The caller passes the expected one, so that debug builds catch a
    /// mismatch.
    pub fn set_state(&mut self, key: Key, from: SlotState, to: SlotState) {
        let Some(slot) = self.slot_mut(key) else {
            debug_assert!(false, "{key:?} has ended");
            return;
        };
        debug_assert_eq!(slot.state, from, "{key:?} on its way to {to:?}");
        slot.state = to;
    }

    pub fn get(&self, key: Key) -> Option<&T> {
        self.slot(key).map(|slot| &slot.value)
    }

    #[inline]
    pub fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slot_mut(key).map(|slot| &mut slot.value)
    }

    /// The state and the value, both to be changed.
    #[inline]
    pub fn entry(&mut self, key: Key) -> Option<(&mut SlotState, &mut T)> {
        self.slot_mut(key).map(|slot| (&mut slot.state, &mut slot.value))
    }

    #[inline]
    fn slot_mut(&mut self, key: Key) -> Option<&mut Slot<T>> {
        let slot = self
            .chunks
            .get_mut((key.index / CHUNK) as usize)?
            .get_mut((key.index % CHUNK) as usize)?;
        (slot.generation == key.generation && slot.state != SlotState::Free).then_some(slot)
    }

    /// Frees a slot whose completion goes to its owner. `take` moves out what the owner gets, and
    /// must leave nothing in the slot that owns a resource.
    #[inline]
    pub fn deliver<R>(&mut self, key: Key, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let taken = self.release(key, take)?;
        self.delivered += 1;
        Some(taken)
    }

    /// Frees the slot of an abandoned operation. `take` moves out what must not be dropped here.
    pub fn orphan<R>(&mut self, key: Key, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let taken = self.release(key, take)?;
        self.orphaned += 1;
        Some(taken)
    }

    #[inline]
    fn release<R>(&mut self, key: Key, take: impl FnOnce(&mut T) -> R) -> Option<R> {
        let free = self.free;
        let slot = self.slot_mut(key)?;
        let taken = take(&mut slot.value);
        slot.state = SlotState::Free;
        slot.generation = slot.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        slot.next_free = free;
        self.free = Some(key.index);
        self.in_flight -= 1;
        Some(taken)
    }

    /// The keys of all slots in use.
    pub fn keys(&self) -> impl Iterator<Item = Key> + '_ {
        self.chunks
            .iter()
            .flatten()
            .enumerate()
            .filter(|(_, slot)| slot.state != SlotState::Free)
            .map(|(index, slot)| Key { index: index as u32, generation: slot.generation })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    #[test]
    fn a_token_keeps_its_parts() {
        let key = Key { index: 0xab_cdef, generation: NonZeroU32::new(0xffff_fffe).unwrap() };
        let token = Token::new(key, 0x7f);
        assert_eq!((token.key(), token.piece()), (Some(key), 0x7f));
        assert!(!token.is_internal());
        assert!(Token::internal(3).is_internal());
        assert_eq!(Token::internal(3).key(), None);
        let numbered = Token::internal(3).with_number(0xab_cdef);
        assert!(numbered.is_internal() && numbered != Token::internal(3));
        assert_eq!((numbered.number(), numbered.without_number()), (0xab_cdef, Token::internal(3)));
    }

    /// Moves the value out.
    fn whole<T: Default>(value: &mut T) -> T {
        std::mem::take(value)
    }

    /// Inserts a value.
    fn put<T: Default>(slots: &mut Slots<T>, value: T) -> Option<Key> {
        let (key, place) = slots.insert()?;
        *place = value;
        Some(key)
    }

    #[test]
    fn a_stale_key_finds_no_slot() {
        let mut slots = Slots::new(1);
        let first = put(&mut slots, 'a').unwrap();
        assert_eq!(put(&mut slots, 'b'), None);
        assert_eq!(slots.deliver(first, whole), Some('a'));
        let second = put(&mut slots, 'c').unwrap();
        assert_eq!(first.index, second.index);
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.state(first), None);
        assert_eq!(slots.deliver(first, whole), None);
        assert_eq!(slots.orphan(second, whole), Some('c'));
    }

    #[test]
    fn a_generation_that_overflows_skips_zero() {
        let mut slots = Slots::new(1);
        let key = put(&mut slots, ()).unwrap();
        slots.deliver(key, whole);
        slots.chunks[0][0].generation = NonZeroU32::MAX;
        let last = put(&mut slots, ()).unwrap();
        slots.deliver(last, whole);
        assert_eq!(put(&mut slots, ()).unwrap().generation, NonZeroU32::MIN);
    }

    proptest! {
        /// Compares random sequences of pushes, deliveries and orphanings with a map.
        #[test]
        fn slots_behave_like_a_map(
            cap in 1u32..9,
            steps in proptest::collection::vec((0u8..3, any::<prop::sample::Index>()), 0..200),
        ) {
            let mut slots = Slots::new(cap);
            let mut model: HashMap<Key, u32> = HashMap::new();
            let mut ended: Vec<Key> = Vec::new();
            for (number, (step, which)) in steps.into_iter().enumerate() {
                let number = number as u32;
                if step == 0 {
                    match put(&mut slots, number) {
                        Some(key) => prop_assert_eq!(model.insert(key, number), None),
                        None => prop_assert_eq!(model.len(), cap as usize),
                    }
                } else if !model.is_empty() {
                    let mut keys: Vec<Key> = model.keys().copied().collect();
                    keys.sort_by_key(|key| (key.index, key.generation));
                    let key = *which.get(&keys);
                    let value = match step {
                        1 => slots.deliver(key, whole),
                        _ => slots.orphan(key, whole),
                    };
                    prop_assert_eq!(value, model.remove(&key));
                    ended.push(key);
                }
                let counts = slots.counts();
                let sum = counts.delivered + counts.orphaned + counts.in_flight;
                prop_assert_eq!(counts.pushed, sum);
                prop_assert_eq!(counts.in_flight, model.len() as u64);
                prop_assert_eq!(slots.free_slots(), cap as usize - model.len());
                prop_assert!(ended.iter().all(|key| slots.get(*key).is_none()));
                for (key, value) in &model {
                    prop_assert_eq!(slots.get(*key), Some(value));
                }
            }
        }
    }
}
