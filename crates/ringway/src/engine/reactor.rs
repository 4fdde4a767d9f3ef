//! Reactors: they reap completions besides the threads that submit. A reactor is a tokio
//! runtime's I/O driver, the engine's thread, or the program itself.

#[cfg(all(feature = "tokio", unix))]
#[path = "reactor/tokio.rs"]
pub(crate) mod driver;
#[cfg(not(all(feature = "tokio", unix)))]
#[path = "reactor/no_driver.rs"]
pub(crate) mod driver;
#[cfg(target_os = "linux")]
pub(crate) mod manual;
#[cfg(not(target_os = "linux"))]
#[path = "reactor/no_manual.rs"]
pub(crate) mod manual;
pub(crate) mod thread;
