//! The trials of Linux AIO (`io_setup(2)` and so on): a read, a sync, an eventfd, and the
//! completion ring in user space.

use super::sample::{self, SAMPLE_PAGE, Sample};
use super::{TRIAL_TIMEOUT, refused, wait_for};
use crate::refusal::limits::Limits;
use crate::refusal::{Feature, Refusal};
use crate::sys::eventfd::EventFd;
use crate::sys::kaio::{Context, IOCB_CMD_FDSYNC, IOCB_CMD_PREAD, IoEvent, Iocb};
use std::io;
use std::mem::{self, MaybeUninit};
use std::os::fd::AsRawFd;
use std::time::Duration;

/// What Linux AIO supports besides reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(any(doc, not(feature = "testing")), non_exhaustive)]
pub struct KaioSupport {
    /// Completions can be reaped from the mapped ring without a system call.
    pub user_ring: Result<(), Refusal>,
    /// Completions can signal an eventfd.
    pub res_fd: Result<(), Refusal>,
    /// `IOCB_CMD_FDSYNC`, kernel 4.18.
    pub fsync: Result<(), Refusal>,
}

/// The capacity of the trial's context.
const CONTEXT_SIZE: u32 = 4;

/// Reads the sample through a context and tries the rest.
pub(super) fn trial(sample: &Sample, limits: &Limits) -> Result<KaioSupport, Refusal> {
    let refuse = |feature| move |error: io::Error| refused(feature, &error, limits);
    let context = Context::new(CONTEXT_SIZE)
        .map_err(|errno| refuse(Feature::Kaio)(io::Error::from_raw_os_error(errno)))?;
    let mut trial = Trial { context, sample };
    trial.read(None).map_err(refuse(Feature::Kaio))?;
    Ok(KaioSupport {
        user_ring: if trial.context.has_user_ring() {
            Ok(())
        } else {
            Err(refuse(Feature::KaioUserRing)(io::Error::from_raw_os_error(libc::EOPNOTSUPP)))
        },
        res_fd: EventFd::new()
            .and_then(|event| {
                trial.read(Some(event.as_raw_fd()))?;
                wait_for(TRIAL_TIMEOUT, || event.drain().then_some(()))
                    .ok_or(io::Error::from_raw_os_error(libc::ETIMEDOUT))
            })
            .map_err(refuse(Feature::KaioResFd)),
        fsync: trial.sync().map_err(refuse(Feature::KaioFsync)),
    })
}

struct Trial<'a> {
    context: Context,
    sample: &'a Sample,
}

impl Trial<'_> {
    /// Reads the whole sample and compares it.
    fn read(&mut self, event: Option<i32>) -> io::Result<()> {
        let mut pages = sample::pages(SAMPLE_PAGE);
        let buf = pages.as_mut_ptr() as u64;
        let read =
            Iocb::new(IOCB_CMD_PREAD, self.sample.file().as_raw_fd(), buf, SAMPLE_PAGE as u64, 0);
        let result = self.submit_and_wait(event.map_or(read, |event| read.resfd(event)));
        if matches!(&result, Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT)) {
            // The kernel may still write into the pages.
            mem::forget(pages);
            return result.map(drop);
        }
        result?;
        self.sample.check(&pages)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.submit_and_wait(Iocb::new(IOCB_CMD_FDSYNC, self.sample.file().as_raw_fd(), 0, 0, 0))
            .map(drop)
    }

    /// Submits one request and waits for it. ETIMEDOUT: the kernel still has it, and the memory it
    /// names.
    fn submit_and_wait(&mut self, mut request: Iocb) -> io::Result<i64> {
        // SAFETY: the kernel copies the request before it returns. `read` keeps the memory that the
        // request names until the completion, or leaks it.
        unsafe { self.context.submit(&[&raw mut request]) }
            .map_err(io::Error::from_raw_os_error)?;
        let mut buffer = [MaybeUninit::<IoEvent>::uninit()];
        let result = wait_for(TRIAL_TIMEOUT, || {
            match self.context.get_events(0, &mut buffer, Some(Duration::ZERO)) {
                Ok(events) => events.first().map(|event| Some(event.res)),
                // Interrupted by a signal: not a result.
                Err(libc::EINTR) => None,
                // The request was submitted and its completion cannot be fetched: treat its memory
                // as in flight.
                Err(_) => Some(None),
            }
        });
        match result.flatten() {
            Some(result) if result < 0 => {
                Err(io::Error::from_raw_os_error(result.unsigned_abs() as i32))
            }
            Some(result) => Ok(result),
            None => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
        }
    }
}
