//! foyer's hybrid cache on the engine.

use crate::support::{BlockDevice, configs};
use foyer::{
    BlockEngineConfig, Device, DeviceBuilder, FileDeviceBuilder, FsDeviceBuilder, HybridCache,
    HybridCacheBuilder, HybridCachePolicy, RecoverMode,
};
use ringway_foyer::RingwayIoEngineConfig;
use std::sync::Arc;

const ENTRIES: u64 = 200;

async fn open(device: Arc<dyn Device>, config: RingwayIoEngineConfig) -> HybridCache<u64, Vec<u8>> {
    HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(64 << 10)
        .storage()
        .with_io_engine_config(config)
        .with_engine_config(BlockEngineConfig::new(device).with_block_size(1 << 20))
        .with_recover_mode(RecoverMode::Strict)
        .build()
        .await
        .unwrap()
}

fn value(key: u64) -> Vec<u8> {
    vec![key as u8; 4000 + key as usize]
}

/// Fills a cache, closes it, and reads the entries from a new one on the same device.
async fn survives(device: impl Fn() -> Arc<dyn Device>, config: RingwayIoEngineConfig) {
    let cache = open(device(), config.clone()).await;
    for key in 0..ENTRIES {
        cache.insert(key, value(key));
        // The buffers of the writers drop what comes faster than the device takes it.
        if key % 20 == 0 {
            cache.storage().wait().await;
        }
    }
    cache.close().await.unwrap();
    drop(cache);
    let cache = open(device(), config).await;
    let mut found = 0;
    for key in 0..ENTRIES {
        if let Some(entry) = cache.get(&key).await.unwrap() {
            assert!(*entry.value() == value(key), "{key}");
            found += 1;
        }
    }
    assert_eq!(found, ENTRIES);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_survive_in_files() {
    for config in configs() {
        for direct in [false, true] {
            let dir = tempfile::tempdir().unwrap();
            let device = || {
                let files = FsDeviceBuilder::new(dir.path().join("files"));
                files.with_capacity(16 << 20).with_direct(direct).build().unwrap()
            };
            survives(device, config.clone()).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entries_survive_on_a_block_device() {
    let dir = tempfile::tempdir().unwrap();
    for config in configs() {
        let Some(block) = BlockDevice::over(&dir.path().join("disk"), 16 << 20) else {
            return println!("skipped: no loop devices");
        };
        let device = || {
            let file = FileDeviceBuilder::new(&block.0);
            file.with_capacity(16 << 20).with_direct(true).build().unwrap()
        };
        survives(device, config).await;
    }
}
