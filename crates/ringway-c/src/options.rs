//! `struct ringway_options`: translates options for the core and creates the queue.

use crate::abi;
use crate::error::Failure;
use crate::files::Files;
use crate::queue_handle::{QueueHandle, handle_ref, this_thread};
use crate::records::Records;
use ringway_core::{BackendKind, BuildError, File, Options, OwnerProcess, SqPoll};
use std::ffi::CStr;
use std::time::Duration;

/// The default of `close_wait_ms`.
const DEFAULT_CLOSE_WAIT: Duration = Duration::from_secs(5);

/// Creates a queue.
///
/// # Safety
///
/// `options` is null or valid, and so are its pointers.
pub unsafe fn make(options: *const abi::Options) -> Result<QueueHandle, Failure> {
    let mut core = Options::new();
    let mut close_wait = DEFAULT_CLOSE_WAIT;
    let mut issuer = None;
    if !options.is_null() {
        // SAFETY: `options` is not null, so it is valid.
        let request = unsafe { abi::read(options) }.map_err(|errno| {
            Failure::new(
                errno,
                "create: bad size of struct ringway_options: call ringway_options_init()",
            )
        })?;
        let request = request.as_ref();
        // SAFETY: the pointers in the options are null or valid.
        core = unsafe { translate(request) }?;
        close_wait = self::close_wait(request);
        issuer = (request.flags & abi::SINGLE_ISSUER != 0).then(this_thread);
    }
    // ringway_destroy waits itself, because it calls callbacks afterwards. The core does not wait a
    // second time.
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
        undelivered: 0,
        chain: Vec::new(),
        numbers: Vec::new(),
        issuer,
        owner: OwnerProcess::current(),
        close_wait,
    })
}

/// How long `ringway_destroy` waits for operations that cannot be cancelled.
fn close_wait(options: &abi::Options) -> Duration {
    match options.close_wait_ms {
        0 if options.flags & abi::NO_CLOSE_WAIT == 0 => DEFAULT_CLOSE_WAIT,
        milliseconds => Duration::from_millis(milliseconds.into()),
    }
}

/// Translates options for the core.
///
/// # Safety
///
/// Pointers in the options are null or valid.
unsafe fn translate(request: &abi::Options) -> Result<Options, Failure> {
    let known = abi::SINGLE_ISSUER
        | abi::EVENTFD
        | abi::STRICT
        | abi::SQPOLL
        | abi::IOPOLL
        | abi::SQPOLL_CPU
        | abi::NO_CLOSE_WAIT
        | abi::INTERRUPTIBLE;
    let has = |flag| request.flags & flag != 0;
    if request.flags & !known != 0 {
        return Err(Failure::new(
            libc::EINVAL,
            format!("create: unknown flags: {:#x}", request.flags & !known),
        ));
    }
    if has(abi::SQPOLL_CPU) && !has(abi::SQPOLL) {
        return Err(Failure::new(libc::EINVAL, "create: RINGWAY_SQPOLL_CPU needs RINGWAY_SQPOLL"));
    }
    if has(abi::NO_CLOSE_WAIT) && request.close_wait_ms > 0 {
        return Err(Failure::new(
            libc::EINVAL,
            "create: RINGWAY_NO_CLOSE_WAIT and close_wait_ms are both set: use one of them",
        ));
    }
    let mut core = Options::new()
        .single_issuer(has(abi::SINGLE_ISSUER))
        .eventfd(has(abi::EVENTFD))
        .interruptible(has(abi::INTERRUPTIBLE))
        .strict(has(abi::STRICT));
    core = match request.backend {
        0 => core,
        1 => core.backend(BackendKind::Uring),
        2 => core.backend(BackendKind::Kaio),
        3 => core.backend(BackendKind::Threads),
        4 => null(core)?,
        number => {
            return Err(Failure::new(libc::EINVAL, format!("create: unknown backend: {number}")));
        }
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
        core = core.sqpoll(SqPoll::new(Duration::from_millis(idle.into())).cpu(cpu));
    }
    if has(abi::IOPOLL) {
        // 0 means that no descriptor was given, as in every other option.
        let fd = Some(request.iopoll_fd).filter(|fd| *fd > 0);
        // SAFETY: it is used only while the queue is created; the caller keeps it open that long.
        let file = fd.and_then(|fd| unsafe { File::borrow_raw(fd) });
        core = core.iopoll(&file.ok_or_else(|| {
            Failure::new(
                libc::EINVAL,
                "create: RINGWAY_IOPOLL needs iopoll_fd, a descriptor above 0",
            )
        })?);
    }
    if !request.attach.is_null() {
        // SAFETY: `attach` is not null, so it is a valid queue.
        let other = unsafe { handle_ref(request.attach) };
        if !other.owner.is_current() {
            return Err(Failure::new(libc::ECHILD, ringway_core::Reason::Forked));
        }
        core = core.attach(&other.queue);
    }
    if !request.faults.is_null() {
        // SAFETY: `faults` is not null, so it is a C string.
        core = inject(core, unsafe { CStr::from_ptr(request.faults) })?;
    }
    Ok(core)
}

/// The reason and the fix when a library not built for tests refuses a test option.
#[cfg(not(feature = "testing"))]
const ONLY_FOR_TESTS: &str =
    "only in a library built for tests: `make -C crates/ringway-c testing` builds one";

/// Selects the null backend, in a library built for tests.
#[cfg(feature = "testing")]
fn null(core: Options) -> Result<Options, Failure> {
    Ok(core.backend(BackendKind::Null))
}

#[cfg(not(feature = "testing"))]
fn null(_: Options) -> Result<Options, Failure> {
    Err(Failure::new(libc::EOPNOTSUPP, format!("RINGWAY_BACKEND_NULL: {ONLY_FOR_TESTS}")))
}

/// Injects faults, in a library built for tests. Errors: EINVAL if `faults` cannot be parsed.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn zeroed() -> abi::Options {
        // SAFETY: any bytes are valid options (`Extensible`).
        unsafe { std::mem::zeroed() }
    }

    fn translated(options: &abi::Options) -> String {
        // SAFETY: the pointers are null.
        format!("{:?}", unsafe { translate(options) }.unwrap())
    }

    #[test]
    fn zero_means_the_documented_default_of_each_option() {
        assert_eq!(translated(&zeroed()), format!("{:?}", Options::new()));
        let zero = zeroed();
        let defaults = [
            abi::Options { entries: 64, ..zero },
            abi::Options { in_flight: 1024, ..zero },
            abi::Options { threads: 64, ..zero },
            abi::Options { sync_threads: 4, ..zero },
        ];
        for default in &defaults {
            assert_eq!(translated(default), translated(&zero));
        }
        let sqpoll = abi::Options { flags: abi::SQPOLL, ..zero };
        let idle = abi::Options { sqpoll_idle_ms: 1000, ..sqpoll };
        assert_eq!(translated(&idle), translated(&sqpoll));
        assert_eq!(close_wait(&zero), Duration::from_millis(5000));
        assert_eq!(
            close_wait(&abi::Options { close_wait_ms: 7, ..zero }),
            Duration::from_millis(7)
        );
        let no_wait = abi::Options { flags: abi::NO_CLOSE_WAIT, ..zero };
        assert_eq!(close_wait(&no_wait), Duration::ZERO);
    }

    #[test]
    fn flags_that_need_another_option_are_refused_without_it() {
        for (flags, word) in [(abi::IOPOLL, "iopoll_fd"), (abi::SQPOLL_CPU, "RINGWAY_SQPOLL")] {
            let options = abi::Options { flags, ..zeroed() };
            // SAFETY: the pointers are null.
            let failure = unsafe { translate(&options) }.unwrap_err();
            assert!(format!("{failure:?}").contains(word), "{failure:?}");
        }
    }
}
