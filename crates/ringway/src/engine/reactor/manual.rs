//! What an engine with [`Reaping::Manual`](crate::Reaping::Manual) needs: one descriptor for
//! everything that the program must react to.

use crate::engine::notifier::Notifier;
use crate::engine::shard::Shard;
use ringway_core::{BorrowedFd, OwnedFd};
use rustix::event::epoll;
use std::io;
use std::os::fd::AsFd as _;

/// A descriptor that is readable when any shard's descriptor or the notifier's is, or when the
/// notifier's timer has expired.
pub(crate) struct Readable(OwnedFd);

impl Readable {
    /// Errors: EMFILE, ENFILE, ENOMEM.
    pub(crate) fn new(shards: &[Shard], notifier: &Notifier) -> io::Result<Self> {
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let timer = notifier.timer.as_ref().map(|timer| timer.fd());
        for fd in shards.iter().map(Shard::readable).chain([notifier.fd()]).chain(timer) {
            epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        }
        Ok(Self(all))
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
