//! The tokens of entries that belong to no job. Numbers are not reused, so that a trace shows which
//! is which.

use crate::slots::Token;

/// The poll of the watched eventfd.
pub(super) const WATCH: Token = Token::internal(1);
/// A cancel request, with the lower half of the job's token.
pub(super) const CANCEL: Token = Token::internal(2);
/// A cancel request for [`WATCH`].
pub(super) const CANCEL_WATCH: Token = Token::internal(7);
/// The linked timeout of an operation with a time limit, with the number of its slot.
pub(super) const LINK_TIMEOUT: Token = Token::internal(3);
/// A NOP that makes the ring readable.
pub(super) const WAKE: Token = Token::internal(4);
/// The timer for checking the io-wq workers.
pub(super) const TICK: Token = Token::internal(5);
/// An operation for a worker, which makes the kernel start one.
pub(super) const START_WORKER: Token = Token::internal(6);
/// The pause before a cancel request, with the lower half of the job's token.
pub(super) const CANCEL_PAUSE: Token = Token::internal(8);
/// The poll of the timer of [`Retry`](super::retry::Retry).
pub(super) const RETRY: Token = Token::internal(9);
/// A cancel request for [`RETRY`].
pub(super) const CANCEL_RETRY: Token = Token::internal(10);
/// The timeout that replaces a [`LINK_TIMEOUT`] that the kernel has cut off, with the number of the
/// operation's slot.
pub(super) const TIMEOUT: Token = Token::internal(11);
/// A NOP that replaces a job that the kernel has cut off its chain.
pub(super) const CUT_OFF: Token = Token::internal(12);
