//! A loop on the bare `io-uring` crate, to compare the queue with: random direct reads of 4 KiB.
//!
//! `bare_ring FILE DEPTH SECONDS [BATCH]` prints operations per second and CPU microseconds per
//! operation. Only Linux has rings.

#[cfg(target_os = "linux")]
mod ring;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    #[cfg(target_os = "linux")]
    return ring::run();
    #[cfg(not(target_os = "linux"))]
    return Err("this system has no io_uring".into());
}
