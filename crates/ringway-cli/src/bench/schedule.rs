//! When requests are due at a fixed rate. A request's latency counts from this moment, whether or not the device was
//! ready for it: a stall is felt by all who came during it, not by one (coordinated omission).

const SECOND: u128 = 1_000_000_000;

/// Requests at equal intervals from a start on. Times are nanoseconds of the monotonic clock.
#[derive(Clone, Debug)]
pub struct Schedule {
    start: u64,
    rate: u64,
    taken: u64,
}

impl Schedule {
    /// `rate` requests a second, at least 1.
    pub fn new(start: u64, rate: u64) -> Self {
        Self { start, rate: rate.max(1), taken: 0 }
    }

    /// When the next request is due.
    pub fn due(&self) -> u64 {
        let after = u128::from(self.taken) * SECOND / u128::from(self.rate);
        self.start.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    /// The next request is taken; gives the time when it was due.
    pub fn take(&mut self) -> u64 {
        let due = self.due();
        self.taken += 1;
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_second_has_its_rate_of_requests(start in 0u64..1 << 62, rate in 1u64..2_000_000, seconds in 0u64..1000) {
            let mut schedule = Schedule::new(start, rate);
            schedule.taken = rate * seconds;
            prop_assert_eq!(schedule.take(), start + seconds * 1_000_000_000);
            prop_assert!(schedule.due() >= start + seconds * 1_000_000_000);
        }

        #[test]
        fn requests_are_never_due_before_the_one_before_them(rate in 1u64..u64::MAX) {
            let mut schedule = Schedule::new(5, rate);
            let times: Vec<u64> = (0..100).map(|_| schedule.take()).collect();
            prop_assert_eq!(times[0], 5);
            prop_assert!(times.is_sorted());
        }
    }
}
