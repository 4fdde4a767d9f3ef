//! The binding to Linux AIO: the five system calls, the iocb, and the completion ring in user
//! space.
//!
//! The C library has no wrappers for these calls, so they are made by number. References:
//! io_setup(2), io_submit(2), io_getevents(2), io_cancel(2), io_destroy(2) and the kernel's
//! `include/uapi/linux/aio_abi.h`. The layout of the ring is that of `fs/aio.c`, and is valid only
//! if its magic number and features match.

use super::eventfd::{poll_now, timespec};
use std::io::Read;
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub(crate) const IOCB_CMD_PREAD: u16 = 0;
pub(crate) const IOCB_CMD_PWRITE: u16 = 1;
pub(crate) const IOCB_CMD_FSYNC: u16 = 2;
pub(crate) const IOCB_CMD_FDSYNC: u16 = 3;
pub(crate) const IOCB_CMD_POLL: u16 = 5;
pub(crate) const IOCB_CMD_PREADV: u16 = 7;
pub(crate) const IOCB_CMD_PWRITEV: u16 = 8;

const IOCB_FLAG_RESFD: u32 = 1;

/// `struct iocb`: one request. The kernel copies it in `io_submit`; after that its address only
/// identifies the request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Iocb {
    data: u64,
    #[cfg(target_endian = "little")]
    key: u32,
    rw_flags: u32,
    #[cfg(target_endian = "big")]
    key: u32,
    command: u16,
    priority: i16,
    fd: u32,
    buf: u64,
    nbytes: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    resfd: u32,
}

impl Iocb {
    /// Offsets above `i64::MAX` become negative, and the kernel refuses them.
    pub fn new(command: u16, fd: RawFd, buf: u64, nbytes: u64, offset: u64) -> Self {
        Self { command, fd: fd as u32, buf, nbytes, offset: offset as i64, ..Self::default() }
    }

    /// Sets the number that the completion returns.
    pub fn data(self, data: u64) -> Self {
        Self { data, ..self }
    }

    /// Sets `RWF_*` flags of `pwritev2(2)` (4.13).
    pub fn rw_flags(self, rw_flags: u32) -> Self {
        Self { rw_flags, ..self }
    }

    /// Makes the kernel signal this eventfd at the completion.
    pub fn resfd(self, eventfd: RawFd) -> Self {
        Self { flags: IOCB_FLAG_RESFD, resfd: eventfd as u32, ..self }
    }

    /// True if no eventfd is signalled at the completion; false for the default, unused iocb.
    pub fn lacks_eventfd(&self) -> bool {
        self.flags & IOCB_FLAG_RESFD == 0 && self.data != 0
    }

    pub fn is_poll(&self) -> bool {
        self.command == IOCB_CMD_POLL
    }

    /// Converts the result of the kernel.
    ///
    /// A cancelled poll returns no bits. On some kernels (seen on 5.4, not on 4.18 and 5.10) one
    /// that was woken returns all bits of the wakeup, whether the descriptor is ready for them or
    /// not: the writing end of a pipe is readable there. poll(2) knows; if nothing is ready, the
    /// result is -EAGAIN.
    pub fn result(&self, res: i64) -> i64 {
        if !self.is_poll() || res < 0 {
            return res;
        }
        let possible = self.buf as i64 | i64::from(libc::POLLERR | libc::POLLHUP);
        let is_wakeup = res & !possible != 0;
        match (res & possible, is_wakeup.then(|| poll_now(self.fd as RawFd, self.buf as i16))) {
            (_, Some(Ok(0))) => -i64::from(libc::EAGAIN),
            (_, Some(Ok(ready))) if ready & libc::POLLNVAL == 0 => i64::from(ready),
            (0, _) => -i64::from(libc::ECANCELED),
            (ready, _) => ready,
        }
    }

    pub fn user_data(&self) -> u64 {
        self.data
    }
}

/// `struct io_event`: one completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct IoEvent {
    /// The number set by [`Iocb::data`].
    pub data: u64,
    /// The address of the iocb.
    pub obj: u64,
    /// The result, or minus errno; see [`Iocb::result`].
    pub res: i64,
    /// Set by USB gadgets only; unused here.
    pub res2: i64,
}

/// `struct aio_ring`: the header of the mapped completion ring. The events follow it.
#[repr(C)]
struct CompletionRing {
    id: u32,
    /// The capacity, in events.
    nr: u32,
    /// The next event to reap. This process and io_getevents advance it.
    head: AtomicU32,
    /// Where the kernel writes next.
    tail: AtomicU32,
    magic: u32,
    compat_features: u32,
    incompat_features: u32,
    header_length: u32,
}

const RING_MAGIC: u32 = 0xa10a_10a1;

const _: () = assert!(
    size_of::<Iocb>() == 64 && size_of::<IoEvent>() == 32 && size_of::<CompletionRing>() == 32
);

/// A context: requests in flight and their completion ring.
///
/// It belongs to the process, not to a thread. In a forked child its system calls fail with EINVAL,
/// and its ring must not be touched.
///
/// Dropping it **blocks** until all requests have completed (`io_destroy(2)`; polls are cancelled):
/// forever, if a device or a network file system hangs. See [`abandon`](Self::abandon).
#[derive(Debug)]
pub(crate) struct Context {
    /// `aio_context_t`: the address of the completion ring.
    id: libc::c_ulong,
    /// The capacity of the ring, if it can be read from user space.
    user_ring: Option<u32>,
    abandoned: bool,
}

impl Context {
    /// `io_setup(2)`, for at least this many requests in flight. Errors: its errno; EAGAIN means
    /// that the machine's `fs.aio-max-nr` is used up.
    pub fn new(requests: u32) -> Result<Self, i32> {
        let mut id: libc::c_ulong = 0;
        // SAFETY: the kernel writes one word into `id`, which is live and zero, as required.
        returned(unsafe {
            libc::syscall(libc::SYS_io_setup, libc::c_ulong::from(requests), &raw mut id)
        })?;
        Ok(Self { id, user_ring: user_ring(id), abandoned: false })
    }

    /// As [`new`](Self::new), but completions are fetched with io_getevents only.
    #[cfg(test)]
    pub fn without_user_ring(requests: u32) -> Result<Self, i32> {
        let mut context = Self::new(requests)?;
        context.user_ring = None;
        Ok(context)
    }

    /// True if [`reap`](Self::reap) works.
    pub fn has_user_ring(&self) -> bool {
        self.user_ring.is_some()
    }

    /// `io_submit(2)`: returns how many of these, from the front, the kernel has taken; if it took
    /// none, the errno for the first.
    ///
    /// # Safety
    ///
    /// Each address is that of a live iocb to which no reference exists (the kernel writes its
    /// key). What the iocbs point at stays valid until their completions were reaped.
    pub unsafe fn submit(&self, iocbs: &[*mut Iocb]) -> Result<usize, i32> {
        // SAFETY: the array is live during the call and only read; the caller guarantees the rest.
        returned(unsafe {
            libc::syscall(libc::SYS_io_submit, self.id, iocbs.len() as libc::c_long, iocbs.as_ptr())
        })
    }

    /// `io_getevents(2)`: waits for `min` completions or until `timeout`, and returns as many as
    /// there are and fit. After EINTR none is lost.
    pub fn get_events<'a>(
        &mut self,
        min: usize,
        buffer: &'a mut [MaybeUninit<IoEvent>],
        timeout: Option<Duration>,
    ) -> Result<&'a [IoEvent], i32> {
        let min = min.min(buffer.len()) as libc::c_long;
        let mut timespec = timeout.map(timespec);
        let timeout = timespec.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        let (len, events) = (buffer.len() as libc::c_long, buffer.as_mut_ptr());
        // SAFETY: the kernel writes at most `len` events into `buffer` and reads the timespec; both
        // are live during the call.
        let got = returned(unsafe {
            libc::syscall(libc::SYS_io_getevents, self.id, min, len, events, timeout)
        })?;
        // SAFETY: the kernel has written the first `got` events, and an `IoEvent` has no invalid
        // values.
        Ok(unsafe { std::slice::from_raw_parts(events.cast::<IoEvent>(), got) })
    }

    /// Reaps the completions in the ring, without a system call.
    pub fn reap(&mut self, mut each: impl FnMut(IoEvent)) {
        let Some(nr) = self.user_ring else { return };
        let ring: *mut CompletionRing = ptr::with_exposed_provenance_mut(self.id as usize);
        // SAFETY: `user_ring` is set only if the header at this address was recognized, and the
        // mapping stays until `io_destroy`, which only `drop` calls. Only this process and the
        // kernel change these words.
        let (head, tail) = unsafe { (&(*ring).head, &(*ring).tail) };
        // Only the owner of this context moves the head: `&mut self`.
        let mut at = head.load(Ordering::Relaxed);
        // Pairs with the kernel's barrier between an event and the tail behind it.
        let end = tail.load(Ordering::Acquire);
        if at == end || at >= nr || end >= nr {
            return;
        }
        while at != end {
            // SAFETY: the events follow the header, `at` is less than their number, and the kernel
            // does not write this one again before the head has passed it.
            let event = unsafe { ring.add(1).cast::<IoEvent>().add(at as usize).read() };
            each(event);
            at = if at + 1 == nr { 0 } else { at + 1 };
        }
        // The events were read before the kernel sees their entries as free.
        head.store(at, Ordering::Release);
    }

    /// `io_cancel(2)`, for an iocb that was submitted from this address. Only `IOCB_CMD_POLL` can
    /// be cancelled, so nothing is returned: the completion shows it.
    pub fn cancel(&self, iocb: &Iocb) {
        let mut unused = IoEvent::default();
        // SAFETY: the kernel reads the iocb's key and, before 4.18, may write one event; both are
        // live during the call.
        unsafe {
            libc::syscall(libc::SYS_io_cancel, self.id, ptr::from_ref(iocb), &raw mut unused)
        };
    }

    /// Makes `drop` leave the context without waiting. The context, its share of `fs.aio-max-nr`
    /// and its ring stay until the process ends, and the memory of its requests must stay valid as
    /// long.
    pub fn abandon(&mut self) {
        self.abandoned = true;
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.abandoned {
            return;
        }
        // SAFETY: this value owns the context, and nothing uses the ring after this.
        unsafe { libc::syscall(libc::SYS_io_destroy, self.id) };
    }
}

fn returned(value: libc::c_long) -> Result<usize, i32> {
    usize::try_from(value)
        .map_err(|_| std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
}

/// The capacity of the context's ring, if its header is a known one.
///
/// In a sandbox a context may not be an address at all. So the kernel copies the header through a
/// pipe: for a bad address that fails with EFAULT, where a load would crash. If there are no
/// descriptors for the pipe, completions are fetched with io_getevents.
fn user_ring(id: libc::c_ulong) -> Option<u32> {
    let (mut reader, writer) = std::io::pipe().ok()?;
    let mut header = [0; size_of::<CompletionRing>()];
    // SAFETY: the kernel only reads from the address, and checks it.
    let copied = unsafe {
        libc::write(writer.as_raw_fd(), ptr::with_exposed_provenance(id as usize), header.len())
    };
    if copied != header.len() as isize {
        return None;
    }
    reader.read_exact(&mut header).ok()?;
    let word = |at: usize| {
        u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
    };
    let known = word(mem::offset_of!(CompletionRing, magic)) == RING_MAGIC
        && word(mem::offset_of!(CompletionRing, incompat_features)) == 0
        && word(mem::offset_of!(CompletionRing, header_length)) as usize
            == size_of::<CompletionRing>();
    known.then_some(word(mem::offset_of!(CompletionRing, nr)))
}
