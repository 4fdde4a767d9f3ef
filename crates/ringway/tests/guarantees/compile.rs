//! What the compiler checks: borrowed buffers and those that are not `Send` are rejected, and every
//! future and type is `Send`.
//!
//! A test here shows that something does *not* compile by a trait that a type does not implement.
//! Unlike a test of error messages, this holds for the right reason. The documentation of the crate
//! has the same as programs that fail to compile.

use bytes::{Bytes, BytesMut};
use ringway::fs::{self, Advice, File, OpenOptions};
use ringway::{
    AlignedBuffer, Block, Buffer, Coalesce, Content, Engine, EngineBuilder, Explanation, IoBuffer,
    LogWriter, Position, RangeRead, RangeStream, SpareBuffer, SpareCapacity, Stats,
};
use std::rc::Rc;
use std::sync::Arc;

/// Does not compile if the type implements the trait, because then two implementations match.
macro_rules! never {
    ($($type:ty: $bound:path;)*) => {$(
        const _: fn() = || {
            trait Either<T> {
                fn found() {}
            }
            impl<T: ?Sized> Either<()> for T {}
            struct Has;
            impl<T: ?Sized + $bound> Either<Has> for T {}
            <$type as Either<_>>::found()
        };
    )*};
}

never! {
    &'static [u8]: IoBuffer;
    &'static mut [u8]: IoBuffer;
    &'static mut Vec<u8>: IoBuffer;
    Rc<[u8]>: IoBuffer;
    Rc<Vec<u8>>: IoBuffer;
    Arc<[u8]>: IoBuffer;
    Block: IoBuffer;
    &'static mut [u8]: Content;
    Rc<[u8]>: Content;
    &'static mut Vec<u8>: SpareBuffer;
    Box<[u8]>: SpareBuffer;
}

fn is_send_and_sync<T: Send + Sync + 'static>() {}

/// The kernel may use a custom buffer, and any thread may drop it.
fn a_custom_buffer<B: ringway::CustomBuffer>() {
    is_send_and_sync::<B>();
}

fn is_buffer<B: IoBuffer>() {}

fn is_spare<B: SpareBuffer>() {}

fn is_send<T: Send>(_: T) {}

/// One of each kind of future. This function never runs.
#[expect(dead_code, reason = "it only has to compile")]
fn futures_are_send(file: File, engine: &Engine, options: &OpenOptions, log: &LogWriter) {
    is_send(File::open("path"));
    is_send(File::create("path"));
    is_send(engine.open("path"));
    is_send(options.open("path"));
    is_send(file.read(0..1));
    is_send(file.read_ranges(&[0..1, 2..3]));
    is_send(file.read_ranges_each(&[0..1, 2..3], Coalesce::default()));
    is_send(file.read_exact(0..1));
    is_send(file.read_ranges_stream([0..1, 2..3]).next());
    is_send(file.read_buf_at(Vec::new(), 0));
    is_send(file.read_buf_exact_at(BytesMut::new(), 0));
    is_send(log.append(vec![0]));
    is_send(file.read_at(vec![0], 0));
    is_send(file.read_at(Buffer::from(vec![0]), Position::Current));
    is_send(file.read_exact_at(BytesMut::new(), 0));
    is_send(file.write_at(Bytes::new(), 0));
    is_send(file.write_all_at(AlignedBuffer::new(1, 1), 0));
    is_send(file.read_vectored_at(vec![vec![0]], 0));
    is_send(file.read_all_vectored_at(vec![vec![0]], 0));
    is_send(file.write_vectored_at(vec![vec![0]], 0));
    is_send(file.write_all_vectored_at(vec![vec![0]], 0));
    is_send(file.sync_all());
    is_send(file.sync_data());
    is_send(file.sync_range(0, 0));
    is_send(file.set_len(0));
    is_send(file.allocate(0, 1));
    is_send(file.allocate_written(0, 1));
    is_send(file.advise(0, 0, Advice::Normal));
    is_send(file.warm(&[0..1, 2..3]));
    is_send(file.metadata());
    is_send(file.close());
    is_send(fs::read("path"));
    is_send(fs::read_to_string("path"));
    is_send(fs::write("path", vec![]));
    is_send(fs::write_atomic("path", vec![]));
    is_send(fs::copy("path", "path"));
    is_send(fs::rename("path", "path"));
    is_send(fs::remove_file("path"));
    is_send(fs::remove_dir("path"));
    is_send(fs::create_dir("path"));
    is_send(fs::create_dir_all("path"));
    is_send(fs::hard_link("path", "path"));
    is_send(fs::symlink("path", "path"));
    is_send(fs::metadata("path"));
    is_send(fs::symlink_metadata("path"));
    is_send(fs::try_exists("path"));
}

#[test]
fn types_are_send_and_sync() {
    is_send_and_sync::<File>();
    is_send_and_sync::<Engine>();
    is_send_and_sync::<Block>();
    is_send_and_sync::<OpenOptions>();
    is_send_and_sync::<EngineBuilder>();
    is_send_and_sync::<Explanation>();
    is_send_and_sync::<Stats>();
    is_send_and_sync::<LogWriter>();
    is_send_and_sync::<RangeRead>();
    is_send_and_sync::<RangeStream<std::vec::IntoIter<std::ops::Range<u64>>>>();
    is_spare::<Vec<u8>>();
    is_spare::<BytesMut>();
    is_spare::<SpareCapacity>();
    is_buffer::<Vec<u8>>();
    is_buffer::<Box<[u8]>>();
    is_buffer::<Bytes>();
    is_buffer::<BytesMut>();
    is_buffer::<AlignedBuffer>();
    is_buffer::<Buffer>();
    is_buffer::<Box<dyn ringway::CustomBuffer>>();
    a_custom_buffer::<Nothing>();
}

/// The smallest custom buffer.
struct Nothing;

ringway_torture::custom_buffer!(Nothing, |_this| [0; 0], false);
