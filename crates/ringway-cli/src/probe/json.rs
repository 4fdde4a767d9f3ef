//! A probe as JSON. The mapping is manual: the core does not depend on serde, and these keys are
//! stable for scripts while the names of Rust fields may change. `docs/command-line.md` documents
//! them.

use super::advice::advice;
use super::file_system::observed;
use super::{Probe, has_direct_io};
use ringway_core::device::{DeviceFacts, DirectIo};
use ringway_core::probe::{Capability, Limit, Limits, Machine, PathProbe};
use ringway_core::refusal::{Feature, Refusal, errno_name};
use serde_json::{Value, json};
use std::path::Path;

/// The report as indented JSON with a final newline. Unknown values are null.
pub fn render_json(probe: &Probe) -> String {
    let report = json!({
        "machine": about(&probe.machine),
        "backends": backends(&probe.machine),
        "path": probe.path.as_ref().map(|(path, probed)| {
            about_path(path, probed, &probe.machine.kernel)
        }),
        "advice": advice(probe),
    });
    format!("{report:#}\n")
}

fn about(machine: &Machine) -> Value {
    let limits = &machine.limits;
    let rings: Value = machine
        .ring_memory
        .iter()
        .map(|ring| {
            json!({
                "entries": ring.entries,
                "bytes": ring.bytes,
                "rings_within_memlock": ring.rings,
            })
        })
        .collect();
    json!({
        "kernel": machine.kernel,
        "cpus": machine.cpus,
        "page_size": machine.page_size,
        "container": machine.container,
        "uid": machine.uid,
        "capabilities": capabilities(limits),
        "seccomp": limits.seccomp,
        "seccomp_filters": limits.seccomp_filters,
        "no_new_privs": limits.no_new_privs,
        "memlock": limit(limits.memlock),
        "nofile": limit(limits.nofile),
        "io_uring_disabled": limits.io_uring_disabled,
        "io_uring_group": limits.io_uring_group,
        "aio_max_nr": limits.aio_max_nr,
        "aio_nr": limits.aio_nr,
        "ring_memory": rings,
    })
}

fn capabilities(limits: &Limits) -> Value {
    json!({
        "CAP_IPC_LOCK": limits.has(Capability::IpcLock),
        "CAP_SYS_ADMIN": limits.has(Capability::SysAdmin),
        "CAP_SYS_NICE": limits.has(Capability::SysNice),
    })
}

/// A number, or `"unlimited"`, since null means unknown.
fn limit(limit: Limit) -> Value {
    let value = |value: Option<u64>| value.map_or(json!("unlimited"), |value| json!(value));
    json!({ "soft": value(limit.soft), "hard": value(limit.hard) })
}

fn backends(machine: &Machine) -> Value {
    let mut uring = result(&machine.uring);
    if let Ok(available) = &machine.uring {
        let buffers = available.fixed_buffers.iter();
        uring["flags"] = results(&available.flags);
        uring["options"] = results(&available.options);
        uring["fixed_buffers"] =
            buffers.map(|(size, tried)| (size.to_string(), result(tried))).collect();
        uring["features"] = names(&available.features);
        uring["opcodes"] = match &available.opcodes {
            Ok(opcodes) => names(opcodes),
            Err(_) => result(&available.opcodes),
        };
    }
    let mut kaio = result(&machine.kaio);
    if let Ok(available) = &machine.kaio {
        kaio["user_ring"] = result(&available.user_ring);
        kaio["eventfd"] = result(&available.res_fd);
        kaio["fsync"] = result(&available.fsync);
    }
    json!({ "uring": uring, "kaio": kaio, "threads": result(&machine.threads) })
}

/// `available`, and the reason and the fix if it is false.
fn result<T>(result: &Result<T, Refusal>) -> Value {
    match result {
        Ok(_) => json!({ "available": true }),
        Err(Refusal { errno, meaning, fix, .. }) => json!({
            "available": false,
            "errno": errno,
            "errno_name": errno_name(*errno),
            "meaning": meaning,
            "fix": fix,
        }),
    }
}

fn results(results: &[(Feature, Result<(), Refusal>)]) -> Value {
    results.iter().map(|(feature, tried)| (feature.name(), result(tried))).collect()
}

fn names(names: &[(&'static str, bool)]) -> Value {
    names.iter().copied().collect()
}

fn about_path(path: &Path, probed: &PathProbe, kernel: &str) -> Value {
    let DirectIo { memory_align, offset_align, source, .. } = probed.facts.direct;
    json!({
        "path": path.to_string_lossy(),
        "kind": probed.facts.kind.to_string(),
        "file_system": probed.facts.file_system,
        "direct_io": {
            "supported": has_direct_io(probed, kernel),
            "memory_align": memory_align,
            "offset_align": offset_align,
            "source": source.to_string(),
        },
        "atomic_write": probed.facts.atomic_write.map(|unit| json!({
            "min": unit.min,
            "max": unit.max,
            "max_opt": unit.max_opt,
            "max_segments": unit.max_segments,
        })),
        "direct_read": probed.direct_read.as_ref().map(result),
        "io_poll_read": probed.io_poll.as_ref().map(result),
        "passthrough_read": probed.passthrough.as_ref().map(result),
        "in_use": probed.in_use,
        "device": probed.facts.device.as_ref().map(about_device),
        "observed": observed(&probed.facts.file_system, kernel),
    })
}

fn about_device(device: &DeviceFacts) -> Value {
    json!({
        "name": device.name,
        "major": device.major,
        "minor": device.minor,
        "scheduler": device.scheduler,
        "nr_requests": device.nr_requests,
        "io_poll": device.io_poll,
        "max_sectors_kb": device.max_sectors_kb,
        "rotational": device.rotational,
        "write_back": device.write_back,
        "fua": device.fua,
        "logical_block_size": device.logical_block_size,
        "physical_block_size": device.physical_block_size,
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use ringway_core::device::{AlignmentSource, StorageKind};

    fn parsed(probe: &Probe) -> Value {
        serde_json::from_str(&render_json(probe)).unwrap()
    }

    #[test]
    fn availability_and_refusal_have_the_same_shape() {
        let report = parsed(&samples::available());
        let flags = &report["backends"]["uring"]["flags"];
        assert_eq!(flags["SQPOLL"], json!({ "available": true }));
        assert_eq!(
            flags["NO_SQARRAY"],
            json!({
                "available": false,
                "errno": 22,
                "errno_name": "EINVAL",
                "meaning": "what it means",
                "fix": "what to do",
            })
        );
        assert_eq!(report["backends"]["uring"]["fixed_buffers"]["8388608"]["errno_name"], "ENOMEM");
        assert_eq!(
            report["backends"]["uring"]["opcodes"],
            json!({ "READ": true, "FTRUNCATE": false })
        );
    }

    #[test]
    fn a_refused_backend_has_no_options() {
        let report = parsed(&samples::container());
        assert_eq!(report["backends"]["uring"]["available"], false);
        assert_eq!(report["backends"]["uring"]["flags"], Value::Null);
        assert_eq!(report["path"], Value::Null);
        assert_eq!(report["machine"]["container"], "docker");
    }

    #[test]
    fn unknown_is_null_and_unlimited_is_a_string() {
        let report = parsed(&samples::nothing());
        assert_eq!(report["machine"]["seccomp"], Value::Null);
        assert_eq!(report["machine"]["memlock"]["soft"], "unlimited");
        assert_eq!(report["machine"]["capabilities"]["CAP_IPC_LOCK"], Value::Null);
    }

    #[test]
    fn direct_io_that_was_not_tried_is_unknown() {
        let mut probe = samples::available();
        let (_, path) = probe.path.as_mut().unwrap();
        (path.direct_read, path.facts.direct.source) = (None, AlignmentSource::Assumed);
        assert_eq!(parsed(&probe)["path"]["direct_io"]["supported"], Value::Null);
        probe.path.as_mut().unwrap().1.facts.kind = StorageKind::Regular;
        assert_eq!(parsed(&probe)["path"]["direct_io"]["supported"], true);
    }

    #[test]
    fn direct_io_is_known_by_a_trial_or_by_what_was_observed() {
        let supported = |kind, file_system: &str, source, direct_read, supported| {
            let mut probe = samples::available();
            let (_, path) = probe.path.as_mut().unwrap();
            path.facts.kind = kind;
            path.facts.file_system = file_system.to_owned();
            (path.facts.direct.source, path.facts.direct.supported) = (source, supported);
            path.direct_read = direct_read;
            parsed(&probe)["path"]["direct_io"]["supported"].as_bool()
        };
        let refused = |errno| Some(Err(samples::refusal(Feature::DirectIo, errno)));
        use AlignmentSource::{Assumed, BlockDevice, Driver, Statx};
        use StorageKind::{Block, Directory, Regular};
        for (kind, file_system, source, direct_read, is_supported, expected) in [
            // A file is made in the directory, or cannot be opened.
            (Directory, "ramfs", Assumed, refused(libc::EINVAL), false, Some(false)),
            (Directory, "overlay", Assumed, None, false, None),
            // A file of others may not be read.
            (Regular, "tmpfs", Assumed, refused(libc::EACCES), false, None),
            (Regular, "ramfs", Assumed, refused(libc::EINVAL), false, Some(false)),
            (Regular, "ext4", Statx, refused(libc::EACCES), true, Some(true)),
            (Regular, "squashfs", BlockDevice, refused(libc::EACCES), true, None),
            (Block, "ramfs", BlockDevice, refused(libc::EACCES), true, Some(true)),
            // Nothing can be made in a read-only directory.
            (Directory, "ext4", BlockDevice, None, true, Some(true)),
            (Directory, "ext4", Driver, None, true, Some(true)),
            (Directory, "iso9660", BlockDevice, None, true, Some(true)),
            (Directory, "squashfs", BlockDevice, None, true, None),
            (Directory, "erofs", BlockDevice, None, true, None),
        ] {
            let found = supported(kind, file_system, source, direct_read, is_supported);
            assert_eq!(found, expected, "{kind}, {file_system}");
        }
    }

    #[test]
    fn a_path_contains_its_device() {
        let report = parsed(&samples::available());
        let path = &report["path"];
        assert_eq!(path["device"]["nr_requests"], 256);
        assert_eq!(path["direct_io"]["source"], "statx");
        assert_eq!(path["io_poll_read"]["errno_name"], "EOPNOTSUPP");
        assert_eq!(path["atomic_write"], Value::Null);
        assert!(report["advice"].as_array().is_some_and(|advice| !advice.is_empty()));
    }

    #[test]
    fn the_text_ends_with_one_newline() {
        let text = render_json(&samples::available());
        assert!(text.ends_with("}\n") && !text.ends_with("\n\n"));
    }
}
