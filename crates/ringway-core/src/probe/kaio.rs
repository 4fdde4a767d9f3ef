//! The trial of Linux KAIO (`io_setup(2)` and its kin): a read, a sync, an eventfd, and the completion ring in user
//! space.
//!
//! The C library has no wrappers for these calls, so the few that a trial needs are made here by number.

use super::sample::{PAGE, Pages, Sample, event_fd};
use super::{PATIENCE, refused, wait_for};
use crate::refusal::limits::Limits;
use crate::refusal::{Feature, Refusal};
use std::io::{self, Read};
use std::mem;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr;

/// What KAIO grants beyond reads and writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kaio {
    /// Completions can be picked up from the mapped ring without a system call.
    pub user_ring: Result<(), Refusal>,
    /// An eventfd can be told of completions.
    pub res_fd: Result<(), Refusal>,
    /// `IOCB_CMD_FDSYNC`, kernel 4.18.
    pub fsync: Result<(), Refusal>,
}

/// Requests that the trial's context has room for.
const ROOM: libc::c_uint = 4;

const IOCB_CMD_PREAD: u16 = 0;
const IOCB_CMD_FDSYNC: u16 = 3;
const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb` of `linux/aio_abi.h`. The second and third field change places on big-endian machines, which does not
/// matter to who leaves both zero.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    lio_opcode: u16,
    reqprio: i16,
    fildes: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

/// `struct io_event` of `linux/aio_abi.h`.
#[repr(C)]
#[derive(Default)]
struct IoEvent {
    data: u64,
    obj: u64,
    res: i64,
    res2: i64,
}

const _: () = assert!(mem::size_of::<Iocb>() == 64 && mem::size_of::<IoEvent>() == 32);

/// Reads the sample through a context and tries the rest.
pub(super) fn trial(sample: &Sample, limits: &Limits) -> Result<Kaio, Refusal> {
    let refuse = |feature| move |error: io::Error| refused(feature, &error, limits);
    let context = Context::new().map_err(refuse(Feature::Kaio))?;
    context.read(sample, None).map_err(refuse(Feature::Kaio))?;
    Ok(Kaio {
        user_ring: context.check_user_ring(sample).map_err(refuse(Feature::KaioUserRing)),
        res_fd: event_fd()
            .and_then(|mut event| {
                context.read(sample, Some(event.as_raw_fd()))?;
                wait_for(PATIENCE, || event.read(&mut [0; 8]).ok())
                    .map(drop)
                    .ok_or(io::Error::from_raw_os_error(libc::ETIMEDOUT))
            })
            .map_err(refuse(Feature::KaioResFd)),
        fsync: context.sync(sample).map_err(refuse(Feature::KaioFsync)),
    })
}

/// The kernel's context: the address of its completion ring.
struct Context(libc::c_ulong);

impl Context {
    fn new() -> io::Result<Self> {
        let mut context: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word into the live value.
        call(unsafe { libc::syscall(libc::SYS_io_setup, ROOM, &mut context) })?;
        Ok(Self(context))
    }

    /// Reads the whole sample and compares.
    fn read(&self, sample: &Sample, event: Option<i32>) -> io::Result<()> {
        let mut pages = Pages::zeroed(PAGE);
        let mut request = Iocb {
            lio_opcode: IOCB_CMD_PREAD,
            fildes: sample.file().as_raw_fd() as u32,
            buf: pages.bytes_mut().as_mut_ptr() as u64,
            nbytes: PAGE as u64,
            ..Iocb::default()
        };
        if let Some(event) = event {
            request.flags = IOCB_FLAG_RESFD;
            request.resfd = event as u32;
        }
        let answer = self.carry(request);
        if matches!(&answer, Err(error) if error.raw_os_error() == Some(libc::ETIMEDOUT)) {
            // The kernel may still write into them.
            mem::forget(pages);
            return answer.map(drop);
        }
        answer?;
        sample.check(pages.bytes_mut())
    }

    fn sync(&self, sample: &Sample) -> io::Result<()> {
        self.carry(Iocb { lio_opcode: IOCB_CMD_FDSYNC, fildes: sample.file().as_raw_fd() as u32, ..Iocb::default() })
            .map(drop)
    }

    /// Submits one request and waits for it. ETIMEDOUT: it is still with the kernel, and so is the memory it names.
    fn carry(&self, mut request: Iocb) -> io::Result<i64> {
        let mut list = [ptr::from_mut(&mut request)];
        // SAFETY: the kernel copies the one request that the live list points to before it returns. The memory that the
        // request names stays until the completion: `read` keeps it, and leaks it should none come.
        call(unsafe { libc::syscall(libc::SYS_io_submit, self.0, 1, list.as_mut_ptr()) })?;
        let mut event = IoEvent::default();
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let answer = wait_for(PATIENCE, || {
            // SAFETY: room for one event, and a timeout of zero so that this does not wait; both live on.
            let got = call(unsafe { libc::syscall(libc::SYS_io_getevents, self.0, 0, 1, &mut event, &mut now) });
            match got {
                Ok(0) => None,
                Ok(_) => Some(Ok(event.res)),
                // A signal is no answer.
                Err(error) if error.raw_os_error() == Some(libc::EINTR) => None,
                // The request went out and its completion cannot be fetched, so its memory is as good as in flight.
                Err(_) => Some(Err(io::Error::from_raw_os_error(libc::ETIMEDOUT))),
            }
        });
        match answer {
            Some(Ok(result)) if result < 0 => Err(io::Error::from_raw_os_error(result.unsigned_abs() as i32)),
            Some(result) => result,
            None => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
        }
    }

    /// Whether the ring's header is the one that libaio has read since 2.6: EOPNOTSUPP where it is not.
    fn check_user_ring(&self, sample: &Sample) -> io::Result<()> {
        const HEADER: usize = 32;
        // A sandbox's context may be no address at all. So the kernel copies the header into the sample's file, behind
        // the sample, and answers EFAULT where a load of ours would be a fault.
        let behind = PAGE as u64;
        // SAFETY: the kernel only reads from the address, checks it, and writes into a file of ours.
        let copied = call(unsafe {
            libc::pwrite(
                sample.file().as_raw_fd(),
                ptr::without_provenance(self.0 as usize),
                HEADER,
                behind as libc::off_t,
            )
        } as libc::c_long);
        let mut header = [0; HEADER];
        let known =
            copied.is_ok() && sample.file().read_exact_at(&mut header, behind).is_ok() && is_known_header(&header);
        if known { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: the context is ours and goes away with this value. The kernel waits for requests in flight, which are
        // reads of memory or none.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.0) };
    }
}

/// `struct aio_ring` of the kernel's `fs/aio.c`: id, nr, head, tail, magic, compatible and incompatible features,
/// length of the header.
fn is_known_header(header: &[u8; 32]) -> bool {
    let word = |index: usize| {
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&header[index * 4..][..4]);
        u32::from_ne_bytes(bytes)
    };
    const MAGIC: u32 = 0xa10a_10a1;
    word(4) == MAGIC && word(6) == 0 && word(7) == 32
}

fn call(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(magic: u32, incompatible: u32, length: u32) -> [u8; 32] {
        let words = [7, 128, 3, 3, magic, 1, incompatible, length];
        let mut bytes = [0; 32];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&u32::to_ne_bytes(word));
        }
        bytes
    }

    #[test]
    fn only_the_known_header_is_trusted() {
        assert!(is_known_header(&header(0xa10a_10a1, 0, 32)));
        assert!(!is_known_header(&header(0xa10a_10a2, 0, 32)));
        assert!(!is_known_header(&header(0xa10a_10a1, 1, 32)));
        assert!(!is_known_header(&header(0xa10a_10a1, 0, 64)));
        assert!(!is_known_header(&[0; 32]));
    }
}
