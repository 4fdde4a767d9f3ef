//! The type of the Linux AIO backend on systems without it: there is no value of it.

use super::{Backend, BackendFull, Event, Job, Wait};
use crate::op::Raw;
use crate::slots::Token;
use crate::sys::RawFd;
use std::io;
use std::time::Instant;

/// No value: a queue on such a system has no KAIO backend.
pub(crate) enum Kaio {}

impl Kaio {
    pub fn signal_all(&mut self, _yes: bool) {
        match *self {}
    }

    pub fn has_silent_jobs(&self) -> bool {
        match *self {}
    }
}

impl Backend for Kaio {
    unsafe fn push(&mut self, _job: &Job) -> Result<(), BackendFull> {
        match *self {}
    }

    fn enter(
        &mut self,
        _want: usize,
        _until: Option<Instant>,
        _events: &mut Vec<Event>,
    ) -> io::Result<Wait> {
        match *self {}
    }

    fn cancel(&mut self, _token: Token) {
        match *self {}
    }

    fn ends_by_cancel(&self, _raw: &Raw, _is_storage: bool) -> bool {
        match *self {}
    }

    fn poll_fd(&mut self) -> io::Result<RawFd> {
        match *self {}
    }

    fn wake(&mut self) {
        match *self {}
    }

    fn watch(&mut self, _eventfd: RawFd, _active: bool) {
        match *self {}
    }

    fn set_timer(&mut self, _token: Token, _at: Instant) {
        match *self {}
    }

    fn supports(&self, _job: &Job) -> bool {
        match *self {}
    }

    fn chain_capacity(&self) -> usize {
        match *self {}
    }

    fn descriptors(&self) -> Vec<RawFd> {
        match *self {}
    }

    fn system_calls(&self) -> u64 {
        match *self {}
    }
}
