//! The known order of operations: which one completed before another began. Only documented order
//! counts: a completion delivered before a push, chains and barriers.

/// All operations of a run, by number, in the order of their pushes.
#[derive(Debug, Default)]
pub(crate) struct Order {
    places: Vec<Place>,
    drains: Vec<usize>,
    clock: u64,
}

#[derive(Debug)]
struct Place {
    /// The first member of its chain, or the operation itself.
    first: usize,
    drain: bool,
    /// It may have been cancelled while it waited. A cancelled barrier holds nothing back.
    cancelled: bool,
    pushed: u64,
    over: Option<u64>,
}

impl Order {
    /// The number of the next operation.
    pub fn next(&self) -> usize {
        self.places.len()
    }

    /// Adds the next operation.
    pub fn push(&mut self, first: usize, drain: bool) {
        if drain {
            self.drains.push(self.places.len());
        }
        self.clock += 1;
        self.places.push(Place { first, drain, cancelled: false, pushed: self.clock, over: None });
    }

    pub fn cancelled(&mut self, number: usize) {
        self.places[number].cancelled = true;
    }

    /// The operation is known to be over.
    pub fn over(&mut self, number: usize) {
        self.clock += 1;
        self.places[number].over.get_or_insert(self.clock);
    }

    /// Whether `one` was over when `other` began, given that `other` did begin.
    pub fn precedes(&self, one: usize, other: usize) -> bool {
        if one >= other {
            return false;
        }
        let place = &self.places[other];
        if self.places[one].over.is_some_and(|over| over < place.pushed) {
            return true;
        }
        if place.drain && one < place.first {
            return true;
        }
        if other > place.first && self.follows(one, other - 1) {
            return true;
        }
        self.drains
            .iter()
            .take_while(|drain| **drain < other)
            .any(|drain| self.follows(one, *drain))
    }

    /// Whether `one` was over when `middle` was.
    fn follows(&self, one: usize, middle: usize) -> bool {
        one == middle || (!self.places[middle].cancelled && self.precedes(one, middle))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_chains_and_barriers_make_an_order() {
        let mut order = Order::default();
        order.push(0, false);
        order.push(1, false);
        order.push(1, false); // 1 and 2 are a chain
        assert!(order.precedes(1, 2) && !order.precedes(0, 1) && !order.precedes(0, 2));
        order.over(0);
        order.push(3, false);
        assert!(order.precedes(0, 3) && !order.precedes(1, 3) && !order.precedes(3, 0));
        order.push(4, true);
        order.push(5, false);
        assert!(order.precedes(2, 4) && order.precedes(2, 5) && order.precedes(4, 5));
        order.cancelled(4);
        assert!(order.precedes(4, 5) && !order.precedes(2, 5) && order.precedes(0, 5));
    }
}
