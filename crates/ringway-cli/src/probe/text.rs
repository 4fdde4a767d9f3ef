//! A probe as text: sections of aligned rows, and below each refusal its meaning and its fix.

use super::advice::advice;
use super::file_system::observed;
use super::{Probe, has_direct_io};
use ringway_core::device::{AtomicWriteUnit, StorageKind};
use ringway_core::probe::{
    Capability, KaioSupport, Limit, Limits, Machine, PathProbe, UringSupport,
};
use ringway_core::refusal::{Feature, Refusal, bytes_text, errno_text};
use ringway_measure::text::{clean, wrap};
use std::fmt::Write;
use std::path::Path;

/// The report as text.
pub fn render_text(probe: &Probe) -> String {
    let machine = &probe.machine;
    let mut sections = vec![about(machine), backends(machine)];
    if let Ok(uring) = &machine.uring {
        sections.extend(about_uring(machine, uring));
    }
    if let Ok(kaio) = &machine.kaio {
        sections.push(about_kaio(kaio));
    }
    if let Some((path, probed)) = &probe.path {
        sections.push(about_path(path, probed, &machine.kernel));
        sections.extend(about_file_system(&probed.facts.file_system, &machine.kernel));
    }
    let mut text = String::new();
    for section in &sections {
        section.render(&mut text);
        text.push('\n');
    }
    text.push_str("Advice\n");
    text.extend(advice(probe).iter().map(|line| wrap("  - ", line)));
    text
}

/// A heading with rows below it.
struct Section {
    title: String,
    rows: Vec<Row>,
}

/// A label, its value, and paragraphs below it: a lead and a text each.
struct Row {
    label: String,
    value: String,
    notes: Vec<(&'static str, String)>,
}

impl Section {
    fn new(title: impl Into<String>) -> Self {
        Self { title: title.into(), rows: Vec::new() }
    }

    fn row(&mut self, label: impl Into<String>, value: impl Into<String>) {
        self.rows.push(Row { label: label.into(), value: value.into(), notes: Vec::new() });
    }

    /// `available`, or `refused` with its meaning and its fix.
    fn result<T>(&mut self, label: impl Into<String>, result: &Result<T, Refusal>) {
        let Err(Refusal { errno, meaning, fix, .. }) = result else {
            return self.row(label, "available");
        };
        let mut notes = vec![("meaning: ", meaning.clone())];
        if !fix.is_empty() {
            notes.push(("fix:     ", fix.clone()));
        }
        let value = format!("refused: {}", errno_text(*errno));
        self.rows.push(Row { label: label.into(), value, notes });
    }

    fn results(&mut self, results: &[(Feature, Result<(), Refusal>)]) {
        for (feature, result) in results {
            self.result(feature.name(), result);
        }
    }

    /// The existing names in one row and the missing names in another.
    fn names(&mut self, names: &[(&'static str, bool)]) {
        for (label, wanted) in [("has", true), ("lacks", false)] {
            let chosen = names.iter().filter(|(_, exists)| *exists == wanted);
            let chosen: Vec<&str> = chosen.map(|(name, _)| *name).collect();
            if !chosen.is_empty() {
                self.row(label, chosen.join(" "));
            }
        }
    }

    /// Control characters, as names of files and file systems may have them, have no effect.
    fn render(&self, text: &mut String) {
        let _ = writeln!(text, "{}", clean(&self.title));
        let width = self.rows.iter().map(|row| row.label.chars().count()).max().unwrap_or(0);
        let mut explained: &[(&str, String)] = &[];
        for row in &self.rows {
            *text += &wrap(&format!("  {:width$}  ", row.label), &clean(&row.value));
            // Consecutive refusals with the same reason share one explanation.
            if row.notes == explained {
                continue;
            }
            for (lead, note) in &row.notes {
                *text += &wrap(&format!("  {:width$}  {lead}", ""), note);
            }
            if !row.notes.is_empty() {
                explained = &row.notes;
            }
        }
    }
}

fn about(machine: &Machine) -> Section {
    let Machine { kernel, cpus, uid, page_size, limits, container, .. } = machine;
    let mut section = Section::new("Machine and process");
    section.row("kernel", kernel);
    section.row("processors", cpus.to_string());
    section.row("page", bytes_text(*page_size));
    section.row(
        "container",
        container.as_ref().map_or("none seen".to_owned(), |name| format!("probably {name}")),
    );
    section.row("user", if *uid == 0 { "0 (root)".to_owned() } else { uid.to_string() });
    section.row("capabilities", capabilities(limits));
    section.row("seccomp", seccomp(limits));
    section.row("locked memory", format!("{} (ulimit -l)", memlock(limits)));
    section.row(
        "open files",
        format!("{} (ulimit -n)", limit(limits.nofile, |number| number.to_string())),
    );
    section.row("kernel.io_uring_disabled", number(limits.io_uring_disabled));
    section.row("kernel.io_uring_group", number(limits.io_uring_group));
    section.row(
        "fs.aio-nr",
        format!("{} of fs.aio-max-nr {}", number(limits.aio_nr), number(limits.aio_max_nr)),
    );
    section
}

fn capabilities(limits: &Limits) -> String {
    let all = [
        (Capability::IpcLock, "CAP_IPC_LOCK"),
        (Capability::SysAdmin, "CAP_SYS_ADMIN"),
        (Capability::SysNice, "CAP_SYS_NICE"),
    ];
    if limits.capabilities.is_none() {
        return "unknown".to_owned();
    }
    let held: Vec<_> = all
        .iter()
        .filter(|(one, _)| limits.has(*one) == Some(true))
        .map(|(_, name)| *name)
        .collect();
    if held.is_empty() { "none of these".to_owned() } else { held.join(" ") }
}

fn seccomp(limits: &Limits) -> String {
    let mode = match limits.seccomp {
        None => "unknown".to_owned(),
        Some(0) => "off".to_owned(),
        Some(1) => "strict".to_owned(),
        Some(2) => match limits.seccomp_filters {
            Some(1) => "1 filter".to_owned(),
            Some(filters) => format!("{filters} filters"),
            None => "filtered".to_owned(),
        },
        Some(mode) => format!("mode {mode}"),
    };
    match limits.no_new_privs {
        Some(true) => format!("{mode}, no_new_privs set"),
        _ => mode,
    }
}

fn memlock(limits: &Limits) -> String {
    let text = limit(limits.memlock, bytes_text);
    if limits.may_lock_all_memory() {
        format!("{text}, which does not apply with CAP_IPC_LOCK")
    } else {
        text
    }
}

/// `8 MiB`, or `8 MiB, can be raised to unlimited`.
fn limit(limit: Limit, write: impl Fn(u64) -> String) -> String {
    let text = |value: Option<u64>| value.map_or("unlimited".to_owned(), &write);
    if limit.soft == limit.hard {
        text(limit.soft)
    } else {
        format!("{}, can be raised to {}", text(limit.soft), text(limit.hard))
    }
}

fn number<N: ToString>(number: Option<N>) -> String {
    number.map_or("unknown".to_owned(), |number| number.to_string())
}

fn backends(machine: &Machine) -> Section {
    let mut section = Section::new("Backends (each tested with a read)");
    section.result(Feature::Uring.name(), &machine.uring);
    section.result(Feature::Kaio.name(), &machine.kaio);
    section.result(Feature::Threads.name(), &machine.threads);
    section
}

/// Adds to a feature that is available: whether it works depends on more than the ring.
fn add_to_available(section: &mut Section, feature: Feature, text: &str) {
    let is_it = |row: &&mut Row| row.label == feature.name() && row.value == "available";
    if let Some(row) = section.rows.iter_mut().find(is_it) {
        row.value.push_str(text);
    }
}

fn about_uring(machine: &Machine, uring: &UringSupport) -> Vec<Section> {
    let mut rings = Section::new("io_uring: memory of rings");
    for ring in &machine.ring_memory {
        let fit = match ring.rings {
            Some(count) => {
                format!("{count} fit into the locked memory of this user")
            }
            None => "no limit on how many".to_owned(),
        };
        rings.row(
            format!("{} entries", ring.entries),
            format!("{} each, {fit}", bytes_text(ring.bytes)),
        );
    }

    let mut flags = Section::new("io_uring: flags of a ring");
    flags.results(&uring.flags);
    add_to_available(
        &mut flags,
        Feature::IoPoll,
        " (the ring; reads depend on the device: ringway probe PATH)",
    );

    let mut options = Section::new("io_uring: options");
    options.results(&uring.options);
    add_to_available(
        &mut options,
        Feature::Passthrough,
        " (the ring; commands need a device: ringway probe /dev/ng0n1)",
    );
    for (size, result) in &uring.fixed_buffers {
        options.result(format!("{}, {}", Feature::FixedBuffers, bytes_text(*size)), result);
    }

    let mut features = Section::new("io_uring: features of this kernel");
    features.names(&uring.features);

    let mut opcodes = Section::new("io_uring: operations");
    match &uring.opcodes {
        Ok(names) => opcodes.names(names),
        Err(_) => opcodes.result(Feature::OpcodeTable.name(), &uring.opcodes),
    }
    vec![rings, flags, options, features, opcodes]
}

fn about_kaio(kaio: &KaioSupport) -> Section {
    let mut section = Section::new("Linux AIO: options");
    section.result("completion ring in user space", &kaio.user_ring);
    section.result("eventfd", &kaio.res_fd);
    section.result("fsync", &kaio.fsync);
    section
}

fn about_path(path: &Path, probed: &PathProbe, kernel: &str) -> Section {
    let facts = &probed.facts;
    let mut section = Section::new(format!("Path {}", path.display()));
    section.row("kind", facts.kind.to_string());
    section.row("file system", &facts.file_system);
    let direct = facts.direct;
    section.row(
        "direct I/O",
        match has_direct_io(probed, kernel) {
            Some(true) => format!(
                "memory aligned to {}, offset and length to {} ({})",
                direct.memory_align, direct.offset_align, direct.source
            ),
            Some(false) => "not supported".to_owned(),
            None if facts.kind == StorageKind::Directory => {
                "unknown for this directory: probe a file in it".to_owned()
            }
            None => "unknown: no direct read could be made".to_owned(),
        },
    );
    section.row(
        "untorn writes",
        match facts.atomic_write {
            Some(unit) => untorn_writes(unit),
            None if facts.kind == StorageKind::Directory => {
                "not reported for a directory: probe a file in it".to_owned()
            }
            None => "not supported".to_owned(),
        },
    );
    let nothing = if facts.kind == StorageKind::Directory {
        "not tested: no file with direct I/O could be made here"
    } else {
        "not tested: there is nothing to read"
    };
    match &probed.direct_read {
        Some(result) => section.result("direct read", result),
        None => section.row("direct read", nothing),
    }
    match &probed.io_poll {
        Some(result) => section.result("IOPOLL read", result),
        None if matches!(probed.direct_read, Some(Err(_))) => {
            section.row("IOPOLL read", "not tested: it needs direct reads");
        }
        None => section.row("IOPOLL read", nothing),
    }
    if let Some(result) = &probed.passthrough {
        section.result("passthrough", result);
    }
    if let Some(reason) = &probed.in_use {
        section.row("in use", reason);
    }
    let Some(device) = &facts.device else {
        section.row("device", "none found");
        return section;
    };
    section.row("device", format!("{} ({}:{})", device.name, device.major, device.minor));
    section.row("scheduler", number(device.scheduler.as_ref()));
    section.row("nr_requests", number(device.nr_requests));
    section.row("max_sectors_kb", number(device.max_sectors_kb));
    section.row("io_poll", flag(device.io_poll));
    section.row("rotational", flag(device.rotational));
    let write_cache = match device.write_back {
        Some(true) => format!("write back, FUA: {}", flag(device.fua)),
        Some(false) => "none, or write through".to_owned(),
        None => "unknown".to_owned(),
    };
    section.row("write cache", write_cache);
    section.row(
        "block size",
        format!(
            "{} logical, {} physical",
            number(device.logical_block_size),
            number(device.physical_block_size)
        ),
    );
    section
}

/// `4 KiB to 64 KiB (RWF_ATOMIC), up to 16 KiB by the device`.
fn untorn_writes(unit: AtomicWriteUnit) -> String {
    let by_device = match unit.max_opt {
        Some(most) if most < unit.max => {
            format!(", up to {} by the device", bytes_text(most.into()))
        }
        _ => String::new(),
    };
    format!("{unit} (RWF_ATOMIC){by_device}")
}

/// What docs/file-systems.md says of its type. A device has none.
fn about_file_system(name: &str, kernel: &str) -> Option<Section> {
    let observed = observed(name, kernel)?;
    // The device was another one: what it costs is in flushes, not in time.
    let title = format!(
        "{name}: who serves a request, as observed on Linux {} with a loop device",
        observed.kernel
    );
    let mut section = Section::new(title);
    for (question, answer) in observed.answers() {
        section.row(question, answer);
    }
    Some(section)
}

fn flag(flag: Option<bool>) -> String {
    flag.map_or("unknown", |flag| if flag { "yes" } else { "no" }).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;
    use ringway_measure::text::COLUMNS;

    /// The lines of one section, without its title.
    fn section(text: &str, title: &str) -> Vec<String> {
        text.lines()
            .skip_while(|line| *line != title)
            .skip(1)
            .take_while(|line| !line.is_empty())
            .map(str::to_owned)
            .collect()
    }

    #[test]
    fn a_refusal_has_its_meaning_and_its_fix_below() {
        let text = render_text(&samples::container());
        assert_eq!(
            section(&text, "Backends (each tested with a read)"),
            [
                "  io_uring   refused: EPERM (Operation not permitted)",
                "             meaning: what it means",
                "             fix:     what to do",
                "  Linux AIO  available",
                "  threads    available",
            ]
        );
    }

    #[test]
    fn options_of_a_refused_backend_are_not_listed() {
        let text = render_text(&samples::nothing());
        assert!(!text.contains("io_uring: "), "{text}");
        assert!(!text.contains("Linux AIO: "), "{text}");
        assert!(text.contains("  kernel.io_uring_disabled  unknown\n"), "{text}");
    }

    #[test]
    fn a_path_has_its_untorn_writes() {
        let mut probe = samples::available();
        let mut row = |kind, atomic_write| {
            let (_, path) = probe.path.as_mut().unwrap();
            (path.facts.kind, path.facts.atomic_write) = (kind, atomic_write);
            let rows = section(&render_text(&probe), "Path /data");
            let row = rows.iter().find_map(|row| row.strip_prefix("  untorn writes   ")).unwrap();
            row.to_owned()
        };
        let unit =
            |max_opt| Some(AtomicWriteUnit { min: 4096, max: 65536, max_opt, max_segments: 1 });
        assert!(row(StorageKind::Directory, None).starts_with("not reported for a directory"));
        assert_eq!(row(StorageKind::Regular, None), "not supported");
        let plain = "4 KiB to 64 KiB (RWF_ATOMIC)";
        assert_eq!(row(StorageKind::Regular, unit(None)), plain);
        assert_eq!(row(StorageKind::Block, unit(Some(65536))), plain);
        let by_device = format!("{plain}, up to 16 KiB by the device");
        assert_eq!(row(StorageKind::Regular, unit(Some(16384))), by_device);
    }

    #[test]
    fn names_are_split_into_existing_and_missing() {
        let text = render_text(&samples::available());
        assert_eq!(section(&text, "io_uring: operations"), ["  has    READ", "  lacks  FTRUNCATE"]);
        assert_eq!(
            section(&text, "io_uring: features of this kernel"),
            ["  has    NODROP", "  lacks  NO_IOWAIT"]
        );
    }

    #[test]
    fn ring_memory_has_the_number_of_rings_that_fit() {
        let text = render_text(&samples::available());
        assert_eq!(
            section(&text, "io_uring: memory of rings"),
            [
                "  64 entries   12 KiB each, 682 fit into the locked memory of this user",
                "  256 entries  36 KiB each, 227 fit into the locked memory of this user",
            ]
        );
    }

    #[test]
    fn control_characters_of_names_have_no_effect() {
        let mut probe = samples::available();
        let (path, probed) = probe.path.as_mut().unwrap();
        *path = "/dev/\x1b[31m".into();
        probed.in_use = Some("vda is mounted on /\x1b[32m".to_owned());
        probed.facts.file_system = "fuse.\x1b[33m".to_owned();
        probed.facts.direct.supported = false;
        let text = render_text(&probe);
        assert!(!text.contains('\x1b'), "{text}");
        // The type has a section of its own.
        for (name, times) in [("/dev/\u{fffd}[31m", 2), ("/\u{fffd}[32m", 2), ("\u{fffd}[33m", 3)] {
            assert_eq!(text.matches(name).count(), times, "{text}");
        }
    }

    #[test]
    fn a_path_has_its_device() {
        let path = section(&render_text(&samples::available()), "Path /data");
        for line in [
            "  direct I/O      memory aligned to 512, offset and length to 4096 (statx)",
            "  IOPOLL read     refused: EOPNOTSUPP (Operation not supported)",
            "  device          vda (254:0)",
            "  scheduler       mq-deadline",
            "  block size      512 logical, 4096 physical",
        ] {
            assert!(path.iter().any(|shown| shown == line), "{line}\n{path:#?}");
        }
    }

    #[test]
    fn every_report_ends_with_advice() {
        for probe in [samples::available(), samples::container(), samples::nothing()] {
            let text = render_text(&probe);
            let (_, advice) = text.split_once("\nAdvice\n").unwrap();
            assert!(advice.starts_with("  - "), "{text}");
            assert!(text.ends_with(".\n"), "{text}");
        }
    }

    #[test]
    fn a_repeated_reason_is_explained_once() {
        let mut probe = samples::available();
        let uring = probe.machine.uring.as_mut().unwrap();
        uring.fixed_buffers = [64 << 10, 1 << 20]
            .map(|size| (size, Err(samples::refusal(Feature::FixedBuffers, libc::ENOMEM))))
            .to_vec();
        assert_eq!(
            section(&render_text(&probe), "io_uring: options"),
            [
                "  EXT_ARG                available",
                "  fixed buffers, 64 KiB  refused: ENOMEM (Cannot allocate memory)",
                "                         meaning: what it means",
                "                         fix:     what to do",
                "  fixed buffers, 1 MiB   refused: ENOMEM (Cannot allocate memory)",
            ]
        );
    }

    #[test]
    fn a_read_that_was_not_tested_has_a_reason() {
        let shows = |kind, direct_read, reason: &str| {
            let mut probe = samples::available();
            let probed = &mut probe.path.as_mut().unwrap().1;
            (probed.facts.kind, probed.direct_read, probed.io_poll) = (kind, direct_read, None);
            let text = render_text(&probe);
            assert!(text.contains(&format!("  IOPOLL read     not tested: {reason}\n")), "{text}");
        };
        let refused = Err(samples::refusal(Feature::DirectIo, libc::EACCES));
        shows(StorageKind::Regular, Some(Ok(())), "there is nothing to read");
        shows(StorageKind::Regular, Some(refused), "it needs direct reads");
        shows(StorageKind::Directory, None, "no file with direct I/O could be made here");
    }

    #[test]
    fn no_line_ends_in_blanks() {
        for line in render_text(&samples::available()).lines() {
            assert_eq!(line, line.trim_end());
        }
    }

    #[test]
    fn a_report_fits_a_terminal() {
        let mut probe = samples::container();
        let words = ["word"; 60].join(" ");
        let refusal =
            Refusal { meaning: words.clone(), fix: words, ..probe.machine.uring.unwrap_err() };
        probe.machine.uring = Err(refusal);
        let mut long_list = samples::available();
        let uring = long_list.machine.uring.as_mut().unwrap();
        uring.opcodes = Ok(vec![("OPERATION", true); 50]);
        for probe in [probe, long_list, samples::available(), samples::nothing()] {
            let text = render_text(&probe);
            let too_long = |line: &&str| line.chars().count() > COLUMNS;
            assert_eq!(text.lines().find(too_long), None, "{text}");
        }
    }

    #[test]
    fn a_limit_that_can_be_raised_shows_both_values() {
        let raisable = Limit { soft: Some(1024), hard: None };
        assert_eq!(
            limit(raisable, |number| number.to_string()),
            "1024, can be raised to unlimited"
        );
        assert_eq!(limit(Limit::UNLIMITED, bytes_text), "unlimited");
    }
}
