//! Has the kernel read the next row group of a Parquet file into the page cache while DataFusion
//! decodes the current one.

use datafusion::datasource::listing::FileRange;
use datafusion::datasource::physical_plan::parquet::metadata::CachedParquetMetaData;
use datafusion::execution::cache::cache_manager::FileMetadataCache;
use datafusion::parquet::file::metadata::{ParquetMetaData, RowGroupMetaData};
use futures::FutureExt;
use futures::future::{BoxFuture, join_all};
use object_store::ObjectMeta;
use ringway::fs::{Advice, File};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};

/// Bytes for each call of `posix_fadvise`. The kernel reads no more of a range than fits into one
/// request to the device.
const STEP: u64 = 512 << 10;

/// The prefetching of one scan of a file, or of a part of it.
pub(crate) struct Prefetch {
    max_bytes: u64,
    metadata: Arc<FileMetadataCache>,
    /// The scan reads the row groups that start here; `None`: all of them.
    part: Option<FileRange>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The row group after the last one that was read.
    expected: Option<Expected>,
    /// For the next row group. Dropped with the scan, which cancels it.
    advice: Vec<BoxFuture<'static, ()>>,
}

/// A row group that is probably read next.
#[derive(Clone, Copy)]
struct Expected {
    group: usize,
    /// Bytes of it that are prefetched, or were cached.
    bytes: u64,
}

impl Prefetch {
    pub(crate) fn new(
        max_bytes: u64,
        metadata: Arc<FileMetadataCache>,
        part: Option<FileRange>,
    ) -> Self {
        Self { max_bytes, metadata, part, state: Mutex::default() }
    }

    /// Prefetches what the scan probably reads after these ranges, unless it is cached. It does not
    /// wait.
    pub(crate) fn start(&self, file: &File, listed: &ObjectMeta, ranges: &[Range<u64>]) {
        if self.max_bytes == 0 || file.is_direct() {
            return;
        }
        // DataFusion puts it there when it opens the file.
        let Some(cached) = self.metadata.get(&listed.location) else { return };
        let metadata = cached.file_metadata.as_any().downcast_ref::<CachedParquetMetaData>();
        let Some(metadata) = metadata.filter(|_| cached.is_valid_for(listed)) else { return };

        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let file_metadata = (metadata.parquet_metadata().as_ref(), listed.size);
        let before = state.expected;
        let chunks = self.next(file_metadata, ranges, &mut state.expected);
        if state.expected.map(|next| next.group) != before.map(|next| next.group) {
            state.advice.clear();
        }
        let missing = chunks.into_iter().filter(|chunk| !file.is_cached(&middle(chunk)));
        let steps: Vec<_> = missing.flat_map(steps).collect();
        if steps.is_empty() {
            return;
        }
        let file = file.clone();
        let mut advice = async move {
            let advise = |step: &Range<u64>| {
                file.advise(step.start, step.end - step.start, Advice::WillNeed)
            };
            // Errors are left to the reads.
            join_all(steps.iter().map(advise)).await;
        }
        .boxed();
        // The first poll submits it. Nobody waits for the end.
        let _ = advice.poll_unpin(&mut Context::from_waker(Waker::noop()));
        state.advice.push(advice);
    }

    /// The column chunks of the next row group, if these ranges are those of the same columns in
    /// the current one. Empty if the scan skips row groups, or has no further one.
    fn next(
        &self,
        (file, len): (&ParquetMetaData, u64),
        ranges: &[Range<u64>],
        expected: &mut Option<Expected>,
    ) -> Vec<Range<u64>> {
        let groups = file.row_groups();
        let Some(first) = ranges.first() else { return Vec::new() };
        let has_first = |group: &usize| {
            groups.get(*group).is_some_and(|group| chunks(group).any(|chunk| chunk == *first))
        };
        // Row groups are mostly read in turn, and one after a filter in several requests: the
        // columns of the filter, then the others.
        let probably = expected.iter().flat_map(|next| [next.group, next.group.saturating_sub(1)]);
        let Some(read) = probably.chain(0..groups.len()).find(has_first) else {
            return Vec::new();
        };
        let scanned = |group: usize| groups.get(group).is_some_and(|group| self.scans(group));
        let is_first = read.checked_sub(1).is_none_or(|previous| !scanned(previous));
        let before = expected.replace(Expected { group: read + 1, bytes: 0 });
        let is_expected = |group| before.is_some_and(|before| before.group == group);
        let is_in_turn = is_first || is_expected(read) || is_expected(read + 1);
        if !is_in_turn || !scanned(read + 1) {
            return Vec::new();
        }
        let before = before.filter(|_| is_expected(read + 1));
        let mut bytes = before.map_or(0, |before| before.bytes);
        let next = chunks(&groups[read])
            .zip(chunks(&groups[read + 1]))
            .filter(|(chunk, _)| ranges.contains(chunk))
            .map(|(_, next)| next)
            .filter(|next| next.end <= len)
            .take_while(|next| {
                bytes = bytes.saturating_add(next.end - next.start);
                bytes <= self.max_bytes
            })
            .collect();
        *expected = Some(Expected { group: read + 1, bytes });
        next
    }

    /// Whether the scan reads this row group, as DataFusion decides it.
    fn scans(&self, group: &RowGroupMetaData) -> bool {
        let Some(part) = &self.part else { return true };
        group.columns().first().is_some_and(|first| {
            let start = first.dictionary_page_offset().unwrap_or(first.data_page_offset());
            part.contains(start)
        })
    }
}

impl fmt::Debug for Prefetch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { max_bytes, part, .. } = self;
        f.debug_struct("Prefetch").field("max_bytes", max_bytes).field("part", part).finish()
    }
}

/// The column chunks of a row group; empty ones for metadata that makes no sense.
fn chunks(group: &RowGroupMetaData) -> impl Iterator<Item = Range<u64>> {
    group.columns().iter().map(|column| {
        let start = column.dictionary_page_offset().unwrap_or(column.data_page_offset());
        let end = start.checked_add(column.compressed_size());
        let end = end.and_then(|end| u64::try_from(end).ok());
        u64::try_from(start).ok().zip(end).map_or(0..0, |(start, end)| start..end.max(start))
    })
}

/// The byte in the middle of a chunk, by which it counts as cached: one probe is enough then, while
/// the pages at its ends are also cached with the chunks before and after it.
fn middle(chunk: &Range<u64>) -> Range<u64> {
    let middle = chunk.start + (chunk.end - chunk.start) / 2;
    middle..chunk.end.min(middle + 1)
}

fn steps(chunk: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let end = chunk.end;
    chunk.step_by(STEP as usize).map(move |start| start..end.min(start + STEP))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RingwayFileSystem;
    use crate::test_files::{drop_cached, on_disk};
    use datafusion::arrow::array::{Int64Array, RecordBatch};
    use datafusion::datasource::physical_plan::parquet::metadata::DFParquetMetadata;
    use datafusion::execution::runtime_env::RuntimeEnv;
    use datafusion::parquet::arrow::ArrowWriter;
    use datafusion::parquet::file::properties::WriterProperties;
    use object_store::path::Path;
    use object_store::{ObjectStore, ObjectStoreExt};
    use ringway::Engine;
    use ringway::fs::OpenOptions;
    use std::time::{Duration, Instant};
    use tempfile::NamedTempFile;

    /// Longer than any condition takes to come true.
    const TIMEOUT: Duration = Duration::from_secs(20);

    /// A file with the columns `a` and `b` in row groups of 8000 rows, 64 kB for each column.
    struct Table {
        file: NamedTempFile,
        listed: ObjectMeta,
        cache: Arc<FileMetadataCache>,
        metadata: Arc<ParquetMetaData>,
    }

    impl Table {
        async fn new(groups: i64) -> Self {
            let file = on_disk();
            let column = || Arc::new(Int64Array::from_iter_values(0..groups * 8000)) as _;
            let batch = RecordBatch::try_from_iter([("a", column()), ("b", column())]).unwrap();
            let properties = WriterProperties::builder()
                .set_max_row_group_row_count(Some(8000))
                .set_dictionary_enabled(false)
                .build();
            let to = file.reopen().unwrap();
            let mut writer = ArrowWriter::try_new(to, batch.schema(), Some(properties)).unwrap();
            writer.write(&batch).unwrap();
            writer.close().unwrap();
            file.as_file().sync_all().unwrap();

            let store: Arc<dyn ObjectStore> = Arc::new(RingwayFileSystem::new());
            let path = Path::from_absolute_path(file.path()).unwrap();
            let listed = store.head(&path).await.unwrap();
            let cache = RuntimeEnv::default().cache_manager.get_file_metadata_cache();
            let metadata = DFParquetMetadata::new(&store, &listed)
                .with_file_metadata_cache(Some(cache.clone()))
                .fetch_metadata()
                .await
                .unwrap();
            assert_eq!(metadata.num_row_groups() as i64, groups);
            Self { file, listed, cache, metadata }
        }

        fn chunks(&self, group: usize) -> Vec<Range<u64>> {
            chunks(self.metadata.row_group(group)).collect()
        }

        fn prefetch(&self, max_bytes: u64, part: Option<FileRange>) -> Prefetch {
            Prefetch::new(max_bytes, self.cache.clone(), part)
        }

        /// What follows when these row groups are read in turn.
        fn after(&self, prefetch: &Prefetch, groups: &[usize]) -> Vec<Range<u64>> {
            let mut state = prefetch.state.lock().unwrap();
            let mut next = |group| {
                let file = (self.metadata.as_ref(), self.listed.size);
                prefetch.next(file, &self.chunks(group), &mut state.expected)
            };
            groups.iter().map(|group| next(*group)).last().unwrap()
        }

        /// How many operations prefetching after row group 0 submits.
        async fn operations(&self, prefetch: &Prefetch, engine: &Engine, direct: bool) -> u64 {
            let mut options = OpenOptions::new();
            options.read(true).direct(direct).engine(engine);
            let file = options.open(self.file.path()).await.unwrap();
            let before = engine.stats().counts.pushed;
            prefetch.start(&file, &self.listed, &self.chunks(0));
            engine.stats().counts.pushed - before
        }
    }

    #[tokio::test]
    async fn the_next_row_group_follows_while_none_is_skipped() {
        let table = Table::new(6).await;
        let all = || table.prefetch(u64::MAX, None);
        assert_eq!(table.after(&all(), &[0]), table.chunks(1));
        assert_eq!(table.after(&all(), &[0, 1, 2]), table.chunks(3));
        assert!(table.after(&all(), &[3]).is_empty(), "the scan skips 0, 1 and 2");
        assert!(table.after(&all(), &[0, 2]).is_empty(), "the scan skips 1");
        assert_eq!(table.after(&all(), &[0, 2, 3]), table.chunks(4), "it skips no more");
        assert!(table.after(&all(), &[0, 1, 2, 3, 4, 5]).is_empty(), "the last one");
    }

    #[tokio::test]
    async fn the_part_of_the_scan_and_the_limit_hold() {
        let table = Table::new(6).await;
        let (start, end) = (table.chunks(2)[0].start as i64, table.chunks(4)[0].start as i64);
        let part = || Some(FileRange { start, end });
        assert_eq!(table.after(&table.prefetch(u64::MAX, part()), &[2]), table.chunks(3));
        assert!(table.after(&table.prefetch(u64::MAX, part()), &[2, 3]).is_empty());

        let chunk = table.chunks(1)[0].clone();
        let one = table.prefetch(chunk.end - chunk.start, None);
        let less = table.prefetch(chunk.end - chunk.start - 1, None);
        assert_eq!(table.after(&one, &[0]), [chunk]);
        assert!(table.after(&less, &[0]).is_empty());
    }

    /// As after a filter: its columns, then the others.
    #[tokio::test]
    async fn a_row_group_may_be_read_in_several_requests() {
        let table = Table::new(4).await;
        let len = |chunk: &Range<u64>| chunk.end - chunk.start;
        let both = table.chunks(1).iter().map(len).sum::<u64>();
        for (max_bytes, columns) in [(both, 2), (both - 1, 1)] {
            let prefetch = table.prefetch(max_bytes, None);
            let mut expected = None;
            for group in 0..3 {
                let mut found = Vec::new();
                for column in table.chunks(group) {
                    let file = (table.metadata.as_ref(), table.listed.size);
                    found.extend(prefetch.next(file, &[column], &mut expected));
                }
                assert_eq!(found, table.chunks(group + 1)[..columns], "{group}");
            }
        }
    }

    #[tokio::test]
    async fn only_whole_chunks_are_followed() {
        let table = Table::new(2).await;
        let [a, b] = [table.chunks(0)[0].clone(), table.chunks(0)[1].clone()];
        let part = a.start..a.end - 1;
        let end = table.listed.size - 8..table.listed.size;
        let next = |ranges: &[Range<u64>]| {
            let file = (table.metadata.as_ref(), table.listed.size);
            table.prefetch(u64::MAX, None).next(file, ranges, &mut None)
        };
        assert_eq!(next(std::slice::from_ref(&b)), [table.chunks(1)[1].clone()]);
        assert!(next(std::slice::from_ref(&part)).is_empty());
        assert_eq!(next(&[a, b.start..b.end - 1]), [table.chunks(1)[0].clone()]);
        assert!(next(&[]).is_empty());
        assert!(next(std::slice::from_ref(&end)).is_empty());
    }

    #[tokio::test]
    async fn only_what_is_not_cached_is_prefetched() {
        let table = Table::new(3).await;
        let engine = Engine::builder().build().unwrap();
        let on = table.prefetch(u64::MAX, None);
        // The system may reclaim the page cache at any time, so read the file until it did not.
        let begun = Instant::now();
        while {
            std::fs::read(table.file.path()).unwrap();
            table.operations(&on, &engine, false).await > 0
        } {
            assert!(begun.elapsed() < TIMEOUT, "cached chunks are prefetched");
        }
        assert_eq!(table.operations(&on, &engine, true).await, 0, "direct I/O has no cache");

        let engine = Engine::builder().try_cached(false).build().unwrap();
        assert_eq!(table.operations(&on, &engine, false).await, 2, "both chunks");
        let off = table.prefetch(0, None);
        assert_eq!(table.operations(&off, &engine, false).await, 0);
        let mut other = table.prefetch(u64::MAX, None);
        other.metadata = RuntimeEnv::default().cache_manager.get_file_metadata_cache();
        assert_eq!(table.operations(&other, &engine, false).await, 0, "no metadata");
    }

    /// The pages at the ends are read with the chunks before and after it.
    #[tokio::test]
    async fn a_chunk_of_which_only_the_ends_are_cached_is_prefetched() {
        let table = Table::new(2).await;
        let engine = Engine::builder().build().unwrap();
        if !drop_cached(table.file.path()).await {
            return;
        }
        let file = File::open(table.file.path()).await.unwrap();
        file.advise(0, 0, Advice::Random).await.unwrap();
        for chunk in table.chunks(1) {
            for end in [chunk.start, chunk.end - 1] {
                file.read_exact(end..end + 1).await.unwrap();
            }
        }
        let on = table.prefetch(u64::MAX, None);
        assert_eq!(table.operations(&on, &engine, false).await, 2, "both chunks");
    }

    #[test]
    fn long_chunks_are_several_steps() {
        let steps: Vec<_> = steps(5..STEP * 2 + 6).collect();
        assert_eq!(steps, [5..STEP + 5, STEP + 5..2 * STEP + 5, 2 * STEP + 5..2 * STEP + 6]);
    }
}
