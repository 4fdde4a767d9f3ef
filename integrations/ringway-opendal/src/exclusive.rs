//! A value that is reached through `&mut` alone.

use std::sync::{Mutex, PoisonError};

/// Makes what holds it `Sync`, as OpenDAL wants its streams to be: a shared reference reaches
/// nothing.
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Never waits: nobody else has the lock.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }
}
