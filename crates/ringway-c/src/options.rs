//! `struct ringway_options`, and the queue that it asks for.

use crate::abi;
use crate::error::Failure;
use crate::files::Files;
use crate::queue_handle::{QueueHandle, look, this_thread};
use crate::records::Records;
use ringway_core::{BackendKind, BuildError, File, Home, Options, SqPoll};
use std::ffi::CStr;
use std::time::Duration;

/// Makes the queue.
///
/// # Safety
///
/// `options` is null, or as the header asks for it.
pub unsafe fn make(options: *const abi::Options) -> Result<QueueHandle, Failure> {
    let mut core = Options::new();
    let mut close_wait = Duration::from_secs(5);
    let mut issuer = None;
    if !options.is_null() {
        // SAFETY: the caller's promise.
        let request = unsafe { abi::read(options) }.map_err(|errno| {
            Failure::new(
                errno,
                "ringway_options of another version: made by ringway_options_init()?",
            )
        })?;
        let request = request.as_ref();
        // SAFETY: the caller's promise.
        core = unsafe { translate(request) }?;
        if request.close_wait_ms > 0 || request.flags & abi::NO_CLOSE_WAIT != 0 {
            close_wait = Duration::from_millis(request.close_wait_ms.into());
        }
        issuer = (request.flags & abi::SINGLE_ISSUER != 0).then(this_thread);
    }
    // ringway_destroy waits, so that it can call back afterwards; the core need not wait once more.
    let queue = core.close_wait(Duration::ZERO).build().map_err(|error| {
        let errno = match &error {
            BuildError::Refused(refusal) => refusal.errno,
            _ => libc::EINVAL,
        };
        Failure::new(errno, error)
    })?;
    Ok(QueueHandle {
        queue,
        records: Records::default(),
        files: Files::default(),
        in_callback: false,
        batch: Vec::new(),
        chain: Vec::new(),
        numbers: Vec::new(),
        issuer,
        home: Home::here(),
        close_wait,
    })
}

/// The core's words for what was request.
///
/// # Safety
///
/// Its pointers are as the header asks for them.
unsafe fn translate(request: &abi::Options) -> Result<Options, Failure> {
    let known = abi::SINGLE_ISSUER
        | abi::EVENTFD
        | abi::STRICT
        | abi::SQPOLL
        | abi::IOPOLL
        | abi::SQPOLL_CPU
        | abi::NO_CLOSE_WAIT;
    let has = |flag| request.flags & flag != 0;
    if request.flags & !known != 0 {
        return Err(Failure::new(
            libc::EINVAL,
            format!("unknown flags: {:#x}", request.flags & !known),
        ));
    }
    if has(abi::SQPOLL_CPU) && !has(abi::SQPOLL) {
        return Err(Failure::new(libc::EINVAL, "RINGWAY_SQPOLL_CPU is for RINGWAY_SQPOLL"));
    }
    if has(abi::NO_CLOSE_WAIT) && request.close_wait_ms > 0 {
        return Err(Failure::new(
            libc::EINVAL,
            "RINGWAY_NO_CLOSE_WAIT contradicts close_wait_ms: leave that 0",
        ));
    }
    let mut core = Options::new()
        .single_issuer(has(abi::SINGLE_ISSUER))
        .eventfd(has(abi::EVENTFD))
        .strict(has(abi::STRICT));
    core = match request.backend {
        0 => core,
        1 => core.backend(BackendKind::Uring),
        2 => core.backend(BackendKind::Kaio),
        3 => core.backend(BackendKind::Threads),
        4 => null(core)?,
        number => return Err(Failure::new(libc::EINVAL, format!("backend {number} is none"))),
    };
    let unless_0 = |core: Options, number: u32, set: fn(Options, u32) -> Options| match number {
        0 => core,
        number => set(core, number),
    };
    core = unless_0(core, request.entries, Options::entries);
    core = unless_0(core, request.completion_entries, Options::completion_entries);
    core = unless_0(core, request.in_flight, Options::in_flight);
    core = unless_0(core, request.threads, Options::threads);
    core = unless_0(core, request.sync_threads, Options::sync_threads);
    if request.io_wq_bounded > 0 || request.io_wq_unbounded > 0 {
        core = core.io_wq_workers(request.io_wq_bounded, request.io_wq_unbounded);
    }
    if has(abi::SQPOLL) {
        let idle = if request.sqpoll_idle_ms == 0 { 1000 } else { request.sqpoll_idle_ms };
        let cpu = has(abi::SQPOLL_CPU).then_some(request.sqpoll_cpu);
        core = core.sqpoll(SqPoll { idle: Duration::from_millis(idle.into()), cpu });
    }
    if has(abi::IOPOLL) {
        // 0 is what a structure has in which nothing was set, rather than a descriptor.
        let fd = Some(request.iopoll_fd).filter(|fd| *fd > 0);
        // SAFETY: it is used while the queue is being made, during which the caller keeps it open.
        let file = fd.and_then(|fd| unsafe { File::borrow_raw(fd) });
        core = core.iopoll(
            &file.ok_or_else(|| Failure::new(libc::EINVAL, "RINGWAY_IOPOLL needs iopoll_fd"))?,
        );
    }
    if !request.attach.is_null() {
        // SAFETY: the caller's promise.
        let other = unsafe { look(request.attach) };
        if !other.home.is_here() {
            return Err(Failure::new(libc::ECHILD, ringway_core::Reason::Forked));
        }
        core = core.attach(&other.queue);
    }
    if !request.faults.is_null() {
        // SAFETY: the caller's promise.
        core = inject(core, unsafe { CStr::from_ptr(request.faults) })?;
    }
    Ok(core)
}

/// Why the installed library refuses what follows, and the fix.
#[cfg(not(feature = "testing"))]
const ONLY_FOR_TESTS: &str =
    "only a library built for tests has it: `make -C crates/ringway-c testing` builds one";

/// The null backend, in a library for tests.
#[cfg(feature = "testing")]
fn null(core: Options) -> Result<Options, Failure> {
    Ok(core.backend(BackendKind::Null))
}

#[cfg(not(feature = "testing"))]
fn null(_: Options) -> Result<Options, Failure> {
    Err(Failure::new(libc::EOPNOTSUPP, format!("RINGWAY_BACKEND_NULL: {ONLY_FOR_TESTS}")))
}

/// Injects faults, in a library for tests. Errors: EINVAL for words that are none.
#[cfg(feature = "testing")]
fn inject(core: Options, faults: &CStr) -> Result<Options, Failure> {
    let plan: ringway_core::FaultPlan = faults
        .to_string_lossy()
        .parse()
        .map_err(|error: String| Failure::new(libc::EINVAL, error))?;
    Ok(core.faults(plan))
}

#[cfg(not(feature = "testing"))]
fn inject(_: Options, _: &CStr) -> Result<Options, Failure> {
    Err(Failure::new(libc::EOPNOTSUPP, format!("faults: {ONLY_FOR_TESTS}")))
}
