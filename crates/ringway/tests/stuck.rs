//! What waits for ever keeps no future of other files waiting, on any backend.

use ringway::fs::OpenOptions;
use ringway::{BackendKind, Engine};
use std::ffi::CString;
use std::time::Duration;

/// Long enough for any machine; a hang is turned into a failure by it.
const SOON: Duration = Duration::from_secs(20);

/// Opens of FIFOs that nobody reads: while they wait, and after they have been dropped.
#[test]
fn opens_of_fifos_keep_no_other_open_waiting() {
    for kind in [BackendKind::Uring, BackendKind::Kaio, BackendKind::Threads] {
        let engine = match Engine::builder().backend(kind).build() {
            Ok(engine) => engine,
            Err(error) => {
                println!("skipped: {kind}: {error}");
                continue;
            }
        };
        let dir = tempfile::tempdir().unwrap();
        let fifo = dir.path().join("fifo");
        let name = CString::new(fifo.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: the name is a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let well = dir.path().join("well");
        std::fs::write(&well, b"well").unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let mut writing = OpenOptions::new();
            writing.write(true).engine(&engine);
            let opens: Vec<_> = (0..100)
                .map(|_| {
                    let (writing, fifo) = (writing.clone(), fifo.clone());
                    tokio::spawn(async move { writing.open(fifo).await.map(drop) })
                })
                .collect();
            for dropped in [false, true] {
                for _ in 0..10 {
                    let read = async {
                        let file = engine.open(&well).await.unwrap();
                        file.sync_data().await.unwrap();
                        assert_eq!(&file.read(0..4).await.unwrap()[..], b"well");
                    };
                    let waited = tokio::time::timeout(SOON, read).await;
                    assert!(waited.is_ok(), "{kind}: an open is kept waiting; dropped: {dropped}");
                }
                opens.iter().for_each(|open| open.abort());
            }
            for open in opens {
                assert!(open.await.unwrap_err().is_cancelled());
            }
        });
        // Whoever still waits there is let go.
        drop(std::fs::File::options().read(true).write(true).open(&fifo).unwrap());
    }
}
