//! The callback and `user_data` of each operation in flight. The core's user data of an operation
//! is the number of its record here.

use crate::abi::{Callback, Operation};
use libc::c_void;

/// What is copied from an operation to its completion.
#[derive(Clone, Copy, Debug)]
pub struct Record {
    pub callback: Callback,
    pub user_data: *mut c_void,
}

impl Record {
    #[inline]
    pub fn of(request: &Operation) -> Self {
        Self { callback: request.callback, user_data: request.user_data }
    }
}

/// The records of all operations in flight.
#[derive(Debug, Default)]
pub struct Records {
    records: Vec<Record>,
    free: Vec<u32>,
}

impl Records {
    /// Adds a record and returns its number. There is at most one record for each operation in
    /// flight, so numbers stay below 2^24.
    #[inline]
    pub fn keep(&mut self, record: Record) -> u64 {
        if let Some(index) = self.free.pop()
            && let Some(slot) = self.records.get_mut(index as usize)
        {
            *slot = record;
            return u64::from(index);
        }
        self.records.push(record);
        self.records.len() as u64 - 1
    }

    /// Removes a record. Its number may be reused from now on.
    #[inline]
    pub fn take(&mut self, number: u64) -> Record {
        match self.records.get(number as usize) {
            Some(record) => {
                self.free.push(number as u32);
                *record
            }
            None => Record { callback: None, user_data: std::ptr::null_mut() },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused() {
        let mut records = Records::default();
        let record = |user_data: usize| Record {
            callback: None,
            user_data: std::ptr::without_provenance_mut(user_data),
        };
        let numbers: Vec<u64> = (1..=3).map(|user_data| records.keep(record(user_data))).collect();
        assert_eq!(numbers, [0, 1, 2]);
        assert_eq!(records.take(1).user_data.addr(), 2);
        assert_eq!(records.keep(record(4)), 1);
        assert_eq!(records.take(1).user_data.addr(), 4);
        assert_eq!(records.take(2).user_data.addr(), 3);
        assert_eq!(records.take(0).user_data.addr(), 1);
        assert_eq!(records.records.len(), 3);
    }
}
