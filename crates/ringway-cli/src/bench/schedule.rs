//! The start times of requests at a fixed rate. Latency counts from the scheduled start, whether or
//! not the device was ready: a stall delays every request that was due during it, not only one
//! (coordinated omission).

use super::workload::Rate;

const SECOND: u128 = 1_000_000_000;

/// Requests or bytes at equal intervals. Times are nanoseconds of the monotonic clock.
#[derive(Clone, Debug)]
pub struct Schedule {
    start: u64,
    rate: Rate,
    /// The number of requests taken, or their bytes.
    taken: u64,
}

impl Schedule {
    /// A schedule that begins at `start`.
    pub fn new(start: u64, rate: Rate) -> Self {
        Self { start, rate, taken: 0 }
    }

    /// The start time of the next request.
    pub fn due(&self) -> u64 {
        let (Rate::Requests(rate) | Rate::Bytes(rate)) = self.rate;
        let after = u128::from(self.taken) * SECOND / u128::from(rate.max(1));
        self.start.saturating_add(u64::try_from(after).unwrap_or(u64::MAX))
    }

    /// Takes the next request, which has this many bytes.
    pub fn take(&mut self, bytes: u64) {
        self.taken = self.taken.saturating_add(match self.rate {
            Rate::Requests(_) => 1,
            Rate::Bytes(_) => bytes,
        });
    }

    /// The number of requests of this many bytes that are due before `end` and not taken.
    pub fn missed(&self, end: u64, bytes: u64) -> u64 {
        let (rate, each) = match self.rate {
            Rate::Requests(rate) => (rate, 1),
            Rate::Bytes(rate) => (rate, bytes.max(1)),
        };
        let due = (u128::from(end.saturating_sub(self.start)) * u128::from(rate)).div_ceil(SECOND);
        let missed = due.saturating_sub(u128::from(self.taken)).div_ceil(u128::from(each));
        u64::try_from(missed).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_second_has_its_rate_of_requests(
            start in 0u64..1 << 62,
            rate in 1u64..2_000_000,
            seconds in 0u64..1000,
        ) {
            let mut schedule = Schedule::new(start, Rate::Requests(rate));
            schedule.taken = rate * seconds;
            prop_assert_eq!(schedule.due(), start + seconds * 1_000_000_000);
            schedule.take(4096);
            prop_assert!(schedule.due() >= start + seconds * 1_000_000_000);
        }

        #[test]
        fn start_times_never_decrease(rate in 1u64..u64::MAX, bytes: u64) {
            for rate in [Rate::Requests(rate), Rate::Bytes(rate)] {
                let mut schedule = Schedule::new(5, rate);
                prop_assert_eq!(schedule.due(), 5);
                let mut last = schedule.due();
                for _ in 0..100 {
                    schedule.take(bytes);
                    prop_assert!(schedule.due() >= last);
                    last = schedule.due();
                }
            }
        }
    }

    #[test]
    fn missed_requests_are_counted_in_constant_time() {
        let schedule = Schedule { start: 5, rate: Rate::Requests(1000), taken: 300 };
        assert_eq!(
            [5, 300_000_005, 300_000_006, 1_000_000_005].map(|end| schedule.missed(end, 1)),
            [0, 0, 1, 700]
        );
        let schedule = Schedule { start: 0, rate: Rate::Bytes(8192), taken: 4096 };
        assert_eq!(schedule.missed(1_000_000_000, 4096), 1);
        assert_eq!(Schedule::new(0, Rate::Requests(u64::MAX)).missed(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn a_second_has_its_rate_of_bytes() {
        let mut schedule = Schedule::new(0, Rate::Bytes(8192));
        schedule.take(4096);
        assert_eq!(schedule.due(), 500_000_000);
        schedule.take(12_288);
        assert_eq!(schedule.due(), 2_000_000_000);
    }
}
