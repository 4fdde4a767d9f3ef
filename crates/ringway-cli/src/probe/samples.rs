//! Probes for tests of reports: no test may depend on what its machine supports.

use super::Probe;
use ringway_core::device::{AlignmentSource, DeviceFacts, DirectIo, PathFacts, StorageKind};
use ringway_core::probe::{
    KaioSupport, Limit, Limits, Machine, PathProbe, RingMemory, UringSupport,
};
use ringway_core::refusal::{Feature, Refusal};
use std::path::PathBuf;

/// A refusal with the same text on every machine.
pub(super) fn refusal(feature: Feature, errno: i32) -> Refusal {
    Refusal { feature, errno, meaning: "what it means".to_owned(), fix: "what to do".to_owned() }
}

/// A user without privileges on a common machine, and a directory on a disk.
pub(super) fn available() -> Probe {
    let limit = |value| Limit { soft: Some(value), hard: Some(value) };
    let machine = Machine {
        kernel: "6.18.0".to_owned(),
        cpus: 2,
        uid: 1000,
        page_size: 4096,
        limits: Limits {
            memlock: limit(8 << 20),
            nofile: limit(1024),
            io_uring_disabled: Some(0),
            io_uring_group: Some(-1),
            aio_max_nr: Some(65536),
            aio_nr: Some(0),
            capabilities: Some(0),
            initial_user_namespace: Some(true),
            seccomp: Some(0),
            seccomp_filters: Some(0),
            no_new_privs: Some(false),
        },
        container: None,
        ring_memory: vec![
            RingMemory { entries: 64, bytes: 12288, rings: Some(682) },
            RingMemory { entries: 256, bytes: 36864, rings: Some(227) },
        ],
        uring: Ok(UringSupport {
            flags: vec![
                (Feature::SqPoll, Ok(())),
                (Feature::NoSqArray, Err(refusal(Feature::NoSqArray, libc::EINVAL))),
            ],
            options: vec![(Feature::ExtArg, Ok(()))],
            fixed_buffers: vec![
                (1 << 20, Ok(())),
                (8 << 20, Err(refusal(Feature::FixedBuffers, libc::ENOMEM))),
            ],
            features: vec![("NODROP", true), ("NO_IOWAIT", false)],
            opcodes: Ok(vec![("READ", true), ("FTRUNCATE", false)]),
        }),
        kaio: Ok(KaioSupport {
            user_ring: Ok(()),
            res_fd: Ok(()),
            fsync: Err(refusal(Feature::KaioFsync, libc::EINVAL)),
        }),
        threads: Ok(()),
    };
    let path = PathProbe {
        facts: PathFacts {
            file_system: "ext4".to_owned(),
            kind: StorageKind::Directory,
            direct: DirectIo {
                supported: true,
                memory_align: 512,
                offset_align: 4096,
                source: AlignmentSource::Statx,
            },
            atomic_write: None,
            device: Some(DeviceFacts {
                name: "vda".to_owned(),
                major: 254,
                minor: 0,
                scheduler: Some("mq-deadline".to_owned()),
                nr_requests: Some(256),
                io_poll: Some(false),
                max_sectors_kb: Some(4096),
                rotational: Some(false),
                write_back: Some(true),
                fua: Some(false),
                logical_block_size: Some(512),
                physical_block_size: Some(4096),
            }),
        },
        in_use: None,
        direct_read: Some(Ok(())),
        io_poll: Some(Err(refusal(Feature::IoPoll, libc::EOPNOTSUPP))),
        passthrough: None,
    };
    Probe { machine, path: Some((PathBuf::from("/data"), path)) }
}

/// A container that refuses io_uring.
pub(super) fn container() -> Probe {
    let mut probe = available();
    probe.path = None;
    probe.machine.container = Some("docker".to_owned());
    probe.machine.limits.seccomp = Some(2);
    probe.machine.limits.seccomp_filters = Some(1);
    probe.machine.uring = Err(refusal(Feature::Uring, libc::EPERM));
    probe
}

/// A machine where nothing works and nothing can be read.
pub(super) fn nothing() -> Probe {
    let mut probe = container();
    probe.machine.kaio = Err(refusal(Feature::Kaio, libc::ENOSYS));
    probe.machine.threads = Err(refusal(Feature::Threads, libc::EAGAIN));
    probe.machine.limits = Limits {
        memlock: Limit::UNLIMITED,
        nofile: Limit::UNLIMITED,
        io_uring_disabled: None,
        io_uring_group: None,
        aio_max_nr: None,
        aio_nr: None,
        capabilities: None,
        initial_user_namespace: None,
        seccomp: None,
        seccomp_filters: None,
        no_new_privs: None,
    };
    probe
}
