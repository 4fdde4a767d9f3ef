//! Ctrl-C, noticed even while queries keep all threads of the runtime busy.

use std::io;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// A message for each Ctrl-C from now on; they do not end the program any more. A runtime of its
/// own waits for the signal, since the threads of the other one look for events only between tasks.
/// Call it outside of any runtime.
pub fn interrupts() -> io::Result<mpsc::Receiver<()>> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut signals = runtime.block_on(async { signal(SignalKind::interrupt()) })?;
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        runtime.block_on(async {
            while signals.recv().await.is_some() {
                // If the channel is full, the last one has not been noticed yet.
                let _ = sender.try_send(());
            }
        });
    });
    Ok(receiver)
}
