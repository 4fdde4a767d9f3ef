//! Reads lines of whatever comes, a FIFO or a terminal say, and says so when nothing came for a
//! while.
//!
//! ```sh
//! mkfifo /tmp/news && cargo run --example select_timeout /tmp/news & echo hello > /tmp/news
//! ```
//!
//! `select!` drops the read that loses. That cancels it, so it takes nothing that comes later (what
//! came in that very moment may be lost with it); its buffer is freed when the kernel has let go of
//! it. Nothing else has to be done.

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
