//! The monotonic clock in nanoseconds, as one number that is cheap to store with each request.

/// The current time.
#[inline]
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` to a live local variable; this clock never fails.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    nanoseconds(time)
}

/// CPU time that the calling thread has used.
#[inline]
pub fn thread_cpu() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the kernel writes one `timespec` to a live local variable; this clock never fails.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    nanoseconds(time)
}

fn nanoseconds(time: libc::timespec) -> u64 {
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
