//! Measures the cost of the queue itself: pushes, submits and reaps reads on the null backend.
//!
//! `own_cost [DEPTH [OPERATIONS]]` prints the nanoseconds per operation: the median of nine runs,
//! and their range.

use ringway_core::{BackendKind, Buffer, File, Options, op};
use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let depth: usize = args.next().map_or(Ok(32), |depth| depth.parse())?;
    let operations: u64 = args.next().map_or(Ok(5_000_000), |operations| operations.parse())?;

    let file = File::open(std::env::current_exe()?)?;
    let mut queue = Options::new().backend(BackendKind::Null).in_flight(depth as u32).build()?;
    let mut buffers: Vec<Buffer> = (0..depth).map(|_| Buffer::from(vec![0u8; 4096])).collect();
    let mut runs = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        let mut done = 0;
        while done < operations {
            for buffer in buffers.drain(..) {
                queue.push(op::read(&file, buffer, done * 4096))?;
            }
            for completion in queue.reap(depth)? {
                done += 1;
                buffers.extend(completion.into_buffer());
            }
        }
        runs.push(start.elapsed().as_nanos() as f64 / done as f64);
    }
    runs.sort_by(f64::total_cmp);
    println!("depth {depth}: {:.1} ns per operation ({:.1} to {:.1})", runs[4], runs[0], runs[8]);
    Ok(())
}
