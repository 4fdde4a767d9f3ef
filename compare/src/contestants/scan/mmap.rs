//! A mapping of the whole file, from which each range is copied on tokio's thread pool: page faults
//! block.

use super::{Contestant, Input, on_tokio};
use memmap2::Mmap as Mapping;
use tokio::task::spawn_blocking;

pub const MMAP: Contestant = Contestant::scan(
    "mmap",
    "multi-thread tokio; each spawn_blocking copies a range from a mapping of the file",
    run,
);

fn run(input: &Input<'_>) -> anyhow::Result<()> {
    let Input { work, concurrency, .. } = *input;
    // SAFETY: nobody changes the file while it is measured.
    let mapping: &'static Mapping = Box::leak(Box::new(unsafe { Mapping::map(&input.open()?) }?));
    on_tokio(concurrency, || async move {
        while let Some(range) = work.take_one() {
            let bytes = (range.start as usize)..(range.end as usize);
            match spawn_blocking(move || mapping.get(bytes).map(<[u8]>::to_vec)).await {
                Ok(Some(bytes)) => work.read(range, &bytes),
                Ok(None) => work.fail("the range ends beyond the file"),
                Err(error) => work.fail(error),
            }
        }
    })
}
