//! Reads lines from a FIFO or a terminal, and reports when nothing arrives for a while.
//!
//! ```sh
//! mkfifo /tmp/news && cargo run --example select_timeout /tmp/news & echo hello > /tmp/news
//! ```
//!
//! `select!` drops the read that loses. That cancels the read, so it does not consume later data
//! (data that arrives at that very moment may be lost with it). Its buffer is freed once the kernel
//! no longer uses it. Nothing else is needed.

use ringway::Position;
use ringway::fs::File;
use std::io::Write;
use std::time::Duration;

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    let path = std::env::args_os().nth(1).expect("usage: select_timeout FILE");
    let file = File::open(path).await?;
    loop {
        tokio::select! {
            (read, buffer) = file.read_at(vec![0; 4096], Position::Current) => match read? {
                0 => return Ok(()),
                bytes => std::io::stdout().write_all(&buffer[..bytes])?,
            },
            () = tokio::time::sleep(Duration::from_millis(200)) => println!("nothing for 200 ms"),
        }
    }
}
