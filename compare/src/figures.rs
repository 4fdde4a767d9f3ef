//! The names of the figures that `ringway_measure::rounds` does not have.

/// Latency in microseconds.
pub const P50: &str = "p50 µs";
pub const P99: &str = "p99 µs";
pub const LONGEST: &str = "longest µs";
/// Context switches because a thread waited, for each operation.
pub const VOLUNTARY: &str = "voluntary ctx/op";
/// Time of polls in microseconds, p99.9, p99.99 and the longest: CPU time of the polling thread,
/// and wall time, which includes the time in which other threads ran.
pub const POLLS_CPU: [&str; 3] = ["poll CPU p99.9 µs", LONG_POLLS, "poll CPU longest µs"];
pub const POLLS_WALL: [&str; 3] = ["poll p99.9 µs", "poll p99.99 µs", "poll longest µs"];
/// The part of polls in which the thread slept in the kernel, and in which others had the
/// processors.
pub const POLLS_WAITED: [&str; 3] = ["waited p99.9 µs", "waited p99.99 µs", "waited longest µs"];
pub const POLLS_READY: [&str; 3] = ["ready p99.9 µs", "ready p99.99 µs", "ready longest µs"];
pub const POLLS: &str = "polls";
pub const LONG_POLLS: &str = "poll CPU p99.99 µs";
/// Operations in a turn.
pub const OPERATIONS: &str = "operations";
/// Readers that ran: fewer than the row's if the contestant limits them.
pub const READERS: &str = "readers";
/// Operations of the reader with the fewest, as a share of the mean.
pub const LEAST_SHARE: &str = "least share";
/// Operations in the first half of the time, as a share of all.
pub const FIRST_HALF: &str = "first half";
/// What a scan took in all.
pub const SECONDS: &str = "seconds";
pub const USER: &str = "user s";
pub const SYSTEM: &str = "system s";
pub const CPU_SECONDS: &str = "CPU s";
pub const MACHINE_SECONDS: &str = "machine s";
pub const PEAK: &str = "peak MiB";
/// What the device was asked for, for each requested byte.
pub const DEVICE: &str = "device ×";
pub const SWITCHES: &str = "switches";
