//! The lines of standard input.

use std::io;
use tokio::sync::mpsc;

/// The lines of standard input, each with its end. They are read by a thread of their own, so that
/// Ctrl-C is noticed while no line comes; the thread ends with the program.
pub fn lines() -> mpsc::Receiver<io::Result<String>> {
    let (sender, receiver) = mpsc::channel(1024);
    std::thread::spawn(move || {
        loop {
            let mut line = String::new();
            let line = match io::stdin().read_line(&mut line) {
                Ok(0) => return,
                Ok(_) => Ok(line),
                Err(error) => Err(error),
            };
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
