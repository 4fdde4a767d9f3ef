//! What a probe means for programs on this machine: short sentences, the most important first.

use super::{Probe, has_direct_io};
use ringway_core::device::{DeviceFacts, PathFacts, StorageKind};
use ringway_core::probe::{Machine, PathProbe, UringSupport};
use ringway_core::refusal::bytes_text;
use ringway_measure::text::clean;
use std::path::Path;

/// Below this number of free requests of Linux AIO, a program with a queue for each core may run
/// out of them.
const FEW_KAIO_REQUESTS: u64 = 8192;

/// Below this limit of descriptors, a program with many files may run out of them.
const FEW_DESCRIPTORS: u64 = 1024;

/// All advice for a probe.
pub(super) fn advice(probe: &Probe) -> Vec<String> {
    let mut advice = of_machine(&probe.machine);
    if let Some((path, probed)) = &probe.path {
        advice.extend(of_path(path, probed, &probe.machine.kernel));
    }
    // Names of files and file systems may have control characters.
    advice.iter().map(|line| clean(line)).collect()
}

fn of_machine(machine: &Machine) -> Vec<String> {
    let mut advice = vec![backend(machine)];
    if let Ok(uring) = &machine.uring {
        let small = machine.ring_memory.first();
        if let Some((ring, rings)) = small.and_then(|ring| Some((ring, ring.rings?))) {
            advice.push(if rings == 0 {
                format!(
                    "RLIMIT_MEMLOCK has no room for a queue of {} entries: queues are smaller, or \
                     fall back. Raise it (ulimit -l).",
                    ring.entries
                )
            } else {
                format!(
                "Keep at most {rings} queues of {} entries in all processes of this user: their \
                 memory and that of fixed buffers counts against RLIMIT_MEMLOCK.",
                ring.entries
            )});
        }
        advice.extend(fixed_buffers(uring));
        if machine.cpus <= 2 {
            advice.push(format!(
                "Leave SQPOLL off: its polling thread would occupy one of {} processors.",
                machine.cpus
            ));
        }
    }
    if let (Ok(_), Some(max), Some(taken)) =
        (&machine.kaio, machine.limits.aio_max_nr, machine.limits.aio_nr)
        && max.saturating_sub(taken) < FEW_KAIO_REQUESTS
    {
        advice.push(format!(
            "Raise fs.aio-max-nr before many programs use kaio: {taken} of its {max} requests are \
             in use."
        ));
    }
    if let Some(soft) = machine.limits.nofile.soft
        && soft < FEW_DESCRIPTORS
    {
        advice.push(format!(
            "Raise the limit of open files (ulimit -n): it is {soft}, and rings need descriptors \
             too."
        ));
    }
    advice
}

/// The backend that queues choose.
fn backend(machine: &Machine) -> String {
    match (&machine.uring, &machine.kaio, &machine.threads) {
        (Ok(_), _, _) => "Queues use io_uring here.",
        (Err(_), Ok(_), Ok(())) => {
            "io_uring is refused: queues use kaio for direct I/O and syncs, threads for the rest."
        }
        (Err(_), Ok(_), Err(_)) => {
            "io_uring and threads are refused: only direct I/O and syncs work, on kaio."
        }
        (Err(_), Err(_), Ok(())) => "io_uring and kaio are refused: queues use threads.",
        (Err(_), Err(_), Err(_)) => "Every backend is refused: no asynchronous I/O here.",
    }
    .to_owned()
}

fn fixed_buffers(uring: &UringSupport) -> Option<String> {
    let refused = uring.fixed_buffers.iter().find(|(_, result)| result.is_err())?;
    let largest = uring.fixed_buffers.iter().rfind(|(_, result)| result.is_ok());
    Some(match largest {
        Some((size, _)) => format!(
            "Register at most {} of buffers: {} were refused, and larger fixed buffers fall back \
             to plain ones.",
            bytes_text(*size),
            bytes_text(refused.0)
        ),
        None => "Do not use fixed buffers: even the smallest were refused.".to_owned(),
    })
}

fn of_path(path: &Path, probed: &PathProbe, kernel: &str) -> Vec<String> {
    let PathFacts { kind, direct, device, file_system, .. } = &probed.facts;
    let mut advice = Vec::new();
    if let Some(reason) = &probed.in_use {
        advice.push(format!("Do not write to {}: {reason}.", path.display()));
    }
    if !matches!(kind, StorageKind::Regular | StorageKind::Block | StorageKind::Directory) {
        return advice;
    }
    let what = if *kind == StorageKind::Directory { "files here" } else { "this file" };
    match has_direct_io(probed, kernel) {
        Some(true) => advice.push(format!(
            "Align direct I/O: buffers to {} bytes, offsets and lengths to {} bytes.",
            direct.memory_align, direct.offset_align
        )),
        Some(false) => advice.push(format!(
            "Do not open {what} with O_DIRECT: {file_system} does not support direct I/O there."
        )),
        None => {}
    }
    if let Some(device) = device {
        let name = &device.name;
        if let Some(requests) = device.nr_requests {
            advice.push(format!(
                "Keep at most {requests} requests in flight on {name}: beyond nr_requests a \
                 submission waits."
            ));
        }
        if let Some(kb) = device.max_sectors_kb {
            advice.push(format!(
                "Split requests larger than {}: {name} splits them anyway (max_sectors_kb).",
                bytes_text(u64::from(kb) * 1024)
            ));
        }
        if device.io_poll == Some(false) {
            advice.push(format!(
                "Leave IOPOLL off on {name}: its queue does not support polling (io_poll is 0)."
            ));
        }
        advice.extend(durable_writes(device));
    }
    advice
}

/// What makes a write durable on the device.
fn durable_writes(device: &DeviceFacts) -> Option<String> {
    let name = &device.name;
    Some(match (device.write_back?, device.fua) {
        (false, _) => {
            format!("A durable write costs no flush on {name}: it has no volatile cache.")
        }
        (true, Some(true)) => format!(
            "Single durable overwrites are cheap on {name}, on file systems that write them with \
             RWF_DSYNC: the device writes past its cache (FUA)."
        ),
        (true, _) => format!(
            "Write much and sync once on {name} (a group commit, as of LogWriter): each durable \
             write flushes its whole cache, because it has no FUA."
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use ringway_core::device::AlignmentSource;

    fn has(advice: &[String], part: &str) -> bool {
        advice.iter().any(|line| line.contains(part))
    }

    #[test]
    fn the_backend_comes_first() {
        assert_eq!(advice(&samples::available())[0], "Queues use io_uring here.");
        assert!(
            advice(&samples::container())[0].starts_with("io_uring is refused: queues use kaio")
        );
        assert!(advice(&samples::nothing())[0].starts_with("Every backend is refused"));
    }

    #[test]
    fn a_user_with_a_memory_limit_sees_how_many_rings_fit() {
        let advice = advice(&samples::available());
        assert!(has(&advice, "at most 682 queues of 64 entries"), "{advice:?}");
        assert!(has(&advice, "at most 1 MiB of buffers: 8 MiB were refused"), "{advice:?}");
    }

    #[test]
    fn root_has_no_limit_of_rings() {
        let mut probe = samples::available();
        for ring in &mut probe.machine.ring_memory {
            ring.rings = None;
        }
        assert!(!has(&advice(&probe), "RLIMIT_MEMLOCK"));
    }

    #[test]
    fn the_limits_of_a_device_are_shown() {
        let advice = advice(&samples::available());
        assert!(has(&advice, "at most 256 requests in flight on vda"), "{advice:?}");
        assert!(has(&advice, "Split requests larger than 4 MiB"), "{advice:?}");
        assert!(has(&advice, "IOPOLL off on vda"), "{advice:?}");
    }

    #[test]
    fn durable_writes_depend_on_the_cache_of_the_device() {
        let mut probe = samples::available();
        for (write_back, fua, part) in [
            (Some(true), Some(false), "sync once on vda"),
            (Some(true), None, "sync once on vda"),
            (Some(true), Some(true), "past its cache (FUA)"),
            (Some(false), Some(false), "no flush on vda"),
        ] {
            let device = probe.path.as_mut().unwrap().1.facts.device.as_mut().unwrap();
            (device.write_back, device.fua) = (write_back, fua);
            assert!(has(&advice(&probe), part), "{write_back:?}, {fua:?}");
        }
        let device = probe.path.as_mut().unwrap().1.facts.device.as_mut().unwrap();
        device.write_back = None;
        assert!(!has(&advice(&probe), "durable"));
    }

    #[test]
    fn a_device_in_use_has_a_warning() {
        let mut probe = samples::available();
        probe.path.as_mut().unwrap().1.in_use = Some("vda is mounted on /".to_owned());
        assert!(has(&advice(&probe), "Do not write to /data: vda is mounted on /."));
    }

    #[test]
    fn where_direct_io_is_not_supported_depends_on_the_kind() {
        let mut probe = samples::available();
        probe.path.as_mut().unwrap().1.facts.direct.supported = false;
        for (kind, part) in [
            (StorageKind::Regular, "open this file with O_DIRECT"),
            (StorageKind::Directory, "open files here with O_DIRECT"),
        ] {
            probe.path.as_mut().unwrap().1.facts.kind = kind;
            assert!(has(&advice(&probe), part), "{kind}");
        }
        // In a directory of a tmpfs or an overlay in which no file could be made, it is unknown.
        let (_, probed) = probe.path.as_mut().unwrap();
        (probed.facts.direct.source, probed.direct_read) = (AlignmentSource::Assumed, None);
        assert!(!has(&advice(&probe), "O_DIRECT") && !has(&advice(&probe), "Align"));
        // A pipe has no alignment.
        probe.path.as_mut().unwrap().1.facts.kind = StorageKind::Fifo;
        assert!(!has(&advice(&probe), "O_DIRECT"));
    }
}
