use crate::support::{BLOCK, BlockDevice, WholeFile, buffer, devices, engines, errno};
use foyer_storage::{DeviceBuilder, FileDeviceBuilder, IoEngine, Partition};
use std::fs::{File, OpenOptions};
use std::sync::Arc;

async fn read(
    engine: &Arc<dyn IoEngine>,
    partition: &dyn Partition,
    len: usize,
    offset: u64,
) -> Result<Vec<u8>, foyer_common::error::Error> {
    let (buffer, result) = engine.read(buffer(len, 0xff), partition, offset).await;
    result.map(|()| buffer.to_vec())
}

/// Writes to each partition, reads back, and checks that buffers are returned, not others.
async fn round_trip(engine: &Arc<dyn IoEngine>, partitions: &[Arc<dyn Partition>]) {
    for (seed, partition) in (1..).zip(partitions) {
        for (len, offset) in [(4096, 0), (BLOCK, 0), (16 << 10, 8 << 10)] {
            let written = buffer(len, seed);
            let (address, expected) = (written.as_ptr(), written.to_vec());
            let (returned, result) = engine.write(written, partition.as_ref(), offset).await;
            result.unwrap();
            assert_eq!(returned.as_ptr(), address);
            let found = read(engine, partition.as_ref(), len, offset).await.unwrap();
            assert!(found == expected);
        }
    }
    // They are different places.
    for (seed, partition) in (1..).zip(partitions) {
        let found = read(engine, partition.as_ref(), 4096, 0).await.unwrap();
        assert!(found == buffer(4096, seed).to_vec());
    }
}

#[tokio::test]
async fn files_are_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines().await {
        for device in devices(dir.path()) {
            round_trip(&engine, &[device.partition(0), device.partition(1)]).await;
        }
    }
}

#[tokio::test]
async fn block_devices_are_written_and_read() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines().await {
        let Some(block) = BlockDevice::over(&dir.path().join("disk"), 2 * BLOCK) else {
            return println!("skipped: no loop devices");
        };
        for direct in [false, true] {
            let device = FileDeviceBuilder::new(&block.0).with_capacity(2 * BLOCK);
            let device = device.with_direct(direct).build().unwrap();
            let partitions = [(); 2].map(|()| device.create_partition(BLOCK).unwrap());
            round_trip(&engine, &partitions).await;
        }
        // The engine must not keep the device from being detached.
        drop(engine);
    }
}

/// foyer's io_uring engine returns such errors with the number negated (0.22.6).
#[tokio::test]
async fn errors_have_the_systems_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 8192]).unwrap();
    for engine in engines().await {
        let read_only = WholeFile::new(File::open(&path).unwrap());
        let (returned, result) = engine.write(buffer(4096, 1), &read_only, 0).await;
        assert_eq!(returned.to_vec(), buffer(4096, 1).to_vec());
        assert_eq!(errno(&result.unwrap_err()), Some(9));
        let write_only = WholeFile::new(OpenOptions::new().write(true).open(&path).unwrap());
        let error = read(&engine, &write_only, 4096, 0).await.unwrap_err();
        assert_eq!(errno(&error), Some(9));
        let full = WholeFile::new(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let (_, result) = engine.write(buffer(4096, 1), &full, 0).await;
        assert_eq!(errno(&result.unwrap_err()), Some(28));
    }
}

/// foyer's io_uring engine takes what there is for the whole (0.22.6).
#[tokio::test]
async fn a_read_that_ends_early_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, vec![7; 6000]).unwrap();
    for engine in engines().await {
        let file = WholeFile::new(File::open(&path).unwrap());
        assert_eq!(read(&engine, &file, 4096, 0).await.unwrap(), [7; 4096]);
        for offset in [4096, 8192] {
            let error = read(&engine, &file, 4096, offset).await.unwrap_err();
            assert!(error.to_string().contains("read failed"), "{error}");
        }
    }
}

/// A descriptor's number belongs to another file once its device has gone.
#[tokio::test]
async fn a_number_that_is_used_again_is_another_file() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines().await {
        for seed in 0..20 {
            let path = dir.path().join(seed.to_string());
            std::fs::write(&path, buffer(4096, seed).to_vec()).unwrap();
            let file = WholeFile::new(File::open(&path).unwrap());
            let found = read(&engine, &file, 4096, 0).await.unwrap();
            assert!(found == buffer(4096, seed).to_vec());
        }
    }
}

/// An operation keeps its buffer and its file, whatever becomes of the handle and the device.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_handles_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    for engine in engines().await {
        for device in devices(dir.path()) {
            let partition = device.partition(0);
            let tasks: Vec<_> = (0..64)
                .map(|task| {
                    let (engine, partition) = (engine.clone(), partition.clone());
                    tokio::spawn(async move {
                        let offset = task % 16 * 65536;
                        let (_, result) = match task % 2 {
                            0 => engine.read(buffer(65536, 0), partition.as_ref(), offset).await,
                            _ => engine.write(buffer(65536, 9), partition.as_ref(), offset).await,
                        };
                        drop(result);
                    })
                })
                .collect();
            tokio::task::yield_now().await;
            for task in tasks {
                task.abort();
                let _ = task.await;
            }
            drop((partition, device));
        }
        let device = devices(dir.path()).remove(0);
        round_trip(&engine, &[device.partition(0), device.partition(1)]).await;
    }
}
