//! Random scripts: a stream does the same as the standard library does on the same bytes in memory.

use crate::common::{multi_thread, open, pattern, wait_until_idle};
use crate::files::{engines, sample};
use proptest::prelude::*;
use std::io::{self, SeekFrom};
use tokio::io::AsyncBufReadExt;

/// Bytes of the file; the largest chunk is a little longer.
const LEN: usize = 70_000;

#[derive(Clone, Debug)]
enum Step {
    Read(usize),
    Block,
    /// Fills the buffer and consumes this percentage of it.
    Consume(usize),
    Seek(SeekFrom),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let seek = prop_oneof![
        (0..LEN as u64 + 5_000).prop_map(SeekFrom::Start),
        (-20_000i64..20_000).prop_map(SeekFrom::Current),
        (-(LEN as i64) - 10..1_000).prop_map(SeekFrom::End),
    ];
    let len = prop_oneof![0usize..10, 0usize..5_000, 0usize..40_000];
    let step = prop_oneof![
        4 => len.prop_map(Step::Read),
        2 => Just(Step::Block),
        2 => (0usize..=100).prop_map(Step::Consume),
        2 => seek.prop_map(Step::Seek),
    ];
    proptest::collection::vec(step, 1..40)
}

#[derive(Clone, Debug)]
enum Put {
    All(usize),
    /// Slices of these lengths.
    Some(Vec<usize>),
    Seek(SeekFrom),
    /// A seek that is polled once and dropped. It takes effect before the next byte.
    DropSeek(SeekFrom),
    Flush,
}

fn puts() -> impl Strategy<Value = Vec<Put>> {
    let seek = || {
        prop_oneof![
            (0..LEN as u64).prop_map(SeekFrom::Start),
            (-20_000i64..20_000).prop_map(SeekFrom::Current),
            (-(LEN as i64)..1_000).prop_map(SeekFrom::End),
        ]
    };
    let put = prop_oneof![
        4 => (0usize..9_000).prop_map(Put::All),
        3 => proptest::collection::vec(0usize..3_000, 0..6).prop_map(Put::Some),
        2 => seek().prop_map(Put::Seek),
        1 => seek().prop_map(Put::DropSeek),
        1 => Just(Put::Flush),
    ];
    proptest::collection::vec(put, 1..30)
}

/// An empty write does not lengthen a file, although it lengthens a `Cursor`.
fn write_model(model: &mut io::Cursor<Vec<u8>>, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() { Ok(()) } else { io::Write::write_all(model, bytes) }
}

/// Runs one step on a writer and on the model, and compares them.
async fn put(
    writer: &mut ringway::Writer,
    model: &mut io::Cursor<Vec<u8>>,
    step: &Put,
    mark: u8,
) -> io::Result<()> {
    match step {
        Put::All(len) => {
            let bytes: Vec<u8> = pattern(0, *len).iter().map(|byte| byte ^ mark).collect();
            writer.write_all(&bytes).await?;
            write_model(model, &bytes)?;
        }
        Put::Some(lens) => {
            let parts: Vec<Vec<u8>> =
                lens.iter().map(|len| vec![mark ^ *len as u8; *len]).collect();
            let slices: Vec<_> = parts.iter().map(|part| io::IoSlice::new(part)).collect();
            let taken = writer.write_vectored(&slices).await?;
            let bytes = parts.concat();
            assert_eq!(taken == 0, bytes.is_empty());
            write_model(model, &bytes[..taken])?;
        }
        Put::Seek(to) => match (writer.seek(*to).await, io::Seek::seek(model, *to)) {
            (Ok(one), Ok(other)) => assert_eq!(one, other),
            (Err(one), Err(other)) => assert_eq!(one.kind(), other.kind()),
            (one, other) => panic!("{step:?}: {one:?}, but {other:?}"),
        },
        Put::DropSeek(to) => {
            let begun = futures::poll!(std::pin::pin!(writer.seek(*to)));
            match io::Seek::seek(model, *to) {
                Ok(_) => writer.write_all(&[mark]).await?,
                // The seek fails at once, or the next write fails.
                Err(_) if begun.is_ready() => writer.write_all(&[mark]).await?,
                Err(_) => {
                    assert!(writer.write_all(&[mark]).await.is_err());
                    writer.write_all(&[mark]).await?;
                }
            }
            io::Write::write_all(model, &[mark])?;
        }
        Put::Flush => writer.flush().await?,
    }
    assert_eq!(writer.position(), model.position(), "after {step:?}");
    Ok(())
}

/// Chunk sizes: small ones, blocks, and more than the file.
fn chunks() -> impl Strategy<Value = usize> {
    prop_oneof![1usize..3_000, Just(4096usize), Just(8192), 1usize..80_000]
}

/// Lengths of writes, some of them followed by a flush.
fn pieces() -> impl Strategy<Value = Vec<(usize, bool)>> {
    let flush = prop_oneof![6 => Just(false), 1 => Just(true)];
    proptest::collection::vec((0usize..30_000, flush), 0..20)
}

/// Runs a future on tokio or without a runtime.
fn run<T>(on_tokio: bool, future: impl Future<Output = T>) -> T {
    if on_tokio { multi_thread(2).block_on(future) } else { futures::executor::block_on(future) }
}

/// Runs one step on a reader and on the model, which ends where the range does, and compares them.
async fn agree(
    reader: &mut ringway::Reader,
    model: &mut io::Cursor<&[u8]>,
    step: &Step,
) -> io::Result<()> {
    let before = model.position();
    let rest = model.get_ref().get(before as usize..).unwrap_or_default();
    match step {
        Step::Read(len) => {
            let mut bytes = vec![0; *len];
            let read = reader.read(&mut bytes).await?;
            assert_eq!(read == 0, *len == 0 || rest.is_empty());
            let mut expected = vec![0; read];
            io::Read::read_exact(model, &mut expected)?;
            assert!(bytes[..read] == expected, "{step:?} at {before}");
        }
        Step::Block => match reader.next_block().await? {
            Some(block) => {
                assert!(!block.is_empty() && rest.starts_with(&block), "{step:?} at {before}");
                model.set_position(before + block.len() as u64);
            }
            None => assert!(rest.is_empty()),
        },
        Step::Consume(share) => {
            let bytes = reader.fill_buf().await?;
            assert!(
                rest.starts_with(bytes) && bytes.is_empty() == rest.is_empty(),
                "{step:?} at {before}"
            );
            let used = bytes.len() * share / 100;
            reader.consume(used);
            model.set_position(before + used as u64);
        }
        Step::Seek(to) => match (reader.seek(*to).await, io::Seek::seek(model, *to)) {
            (Ok(one), Ok(other)) => assert_eq!(one, other, "{step:?} at {before}"),
            (Err(one), Err(other)) => assert_eq!(one.kind(), other.kind(), "{step:?} at {before}"),
            (one, other) => panic!("{step:?} at {before}: {one:?}, but {other:?}"),
        },
    }
    assert_eq!(reader.position(), model.position(), "after {step:?} at {before}");
    Ok(())
}

proptest! {
    #[test]
    fn a_reader_matches_the_model(
        steps in steps(),
        len in prop_oneof![Just(0usize), Just(65_536), 0usize..LEN],
        end in prop_oneof![Just(None), (0..LEN).prop_map(Some)],
        chunk in chunks(),
        ahead in 0usize..5,
        direct in any::<bool>(),
        on_tokio in any::<bool>(),
        engine in any::<prop::sample::Index>(),
    ) {
        let bytes = pattern(0, len);
        let (_dir, path) = sample(&bytes);
        let engine = engine.get(engines());
        let file = open(engine, &path, direct);
        let mut reader = file.reader().chunk(chunk).read_ahead(ahead);
        if let Some(end) = end {
            reader = reader.range(..end as u64);
        }
        let mut model = io::Cursor::new(&bytes[..end.unwrap_or(len).min(len)]);
        run(on_tokio, async {
            for step in &steps {
                agree(&mut reader, &mut model, step).await.unwrap();
            }
            drop(reader);
        });
        wait_until_idle(engine);
    }

    #[test]
    fn a_writer_writes_all_pieces(
        pieces in pieces(),
        before in 0usize..20_000,
        blocks in 0u64..4,
        chunk in chunks(),
        behind in 0usize..5,
        direct in any::<bool>(),
        on_tokio in any::<bool>(),
        engine in any::<prop::sample::Index>(),
    ) {
        let all: usize = pieces.iter().map(|(len, _)| len).sum();
        let bytes = pattern(0, all);
        // A direct file must not extend beyond the data that is written.
        let start = blocks * 4096;
        let old = vec![0xee; if direct { before.min(start as usize) } else { before }];
        let (_dir, path) = sample(&old);
        let engine = engine.get(engines());
        let file = open(engine, &path, direct);
        let mut writer = file.writer().chunk(chunk).write_behind(behind).at(start);
        run(on_tokio, async {
            let mut at = 0;
            for (len, flush) in &pieces {
                writer.write_all(&bytes[at..at + len]).await.unwrap();
                at += len;
                prop_assert_eq!(writer.position(), start + at as u64);
                prop_assert!(writer.written() <= at as u64);
                if *flush {
                    writer.flush().await.unwrap();
                    prop_assert_eq!(writer.written(), at as u64);
                    let there = std::fs::read(&path).unwrap();
                    let there = there.get(start as usize..start as usize + at);
                    prop_assert!(there.unwrap_or_default() == &bytes[..at]);
                }
            }
            writer.sync_all().await.unwrap();
            Ok(())
        })?;
        let mut expected = old;
        if all > 0 {
            expected.resize(expected.len().max(start as usize + all), 0);
            expected[start as usize..start as usize + all].copy_from_slice(&bytes);
        }
        prop_assert!(std::fs::read(&path).unwrap() == expected);
        wait_until_idle(engine);
    }

    #[test]
    fn a_seeking_writer_matches_the_model(
        steps in puts(),
        before in 0usize..20_000,
        chunk in chunks(),
        behind in 0usize..5,
        on_tokio in any::<bool>(),
        engine in any::<prop::sample::Index>(),
    ) {
        let old = pattern(0, before);
        let (_dir, path) = sample(&old);
        let engine = engine.get(engines());
        let mut writer = open(engine, &path, false).writer().chunk(chunk).write_behind(behind);
        let mut model = io::Cursor::new(old);
        run(on_tokio, async {
            for (mark, step) in (1..).zip(&steps) {
                put(&mut writer, &mut model, step, mark).await.unwrap();
            }
            writer.flush().await.unwrap();
        });
        prop_assert!(&std::fs::read(&path).unwrap() == model.get_ref());
        drop(writer);
        wait_until_idle(engine);
    }
}
