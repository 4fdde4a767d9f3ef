//! The texts of refusals, looked up in `refusals.txt`, which explains its lines. The Go module has
//! a copy of that file. Pure: [`Limits`] has all facts about the machine.

use super::limits::{Capability, Limits};
use super::{Feature, bytes_text, errno_name};

const REFUSALS: &str = include_str!("refusals.txt");

/// The meaning of `errno` as the result of requesting `feature`, and the fix.
pub(super) fn explain(feature: Feature, errno: i32, limits: &Limits) -> (String, String) {
    text_of(errno_name(errno).unwrap_or_default(), feature, limits)
}

/// The text of the first rule that fits.
fn text_of(key: &str, feature: Feature, limits: &Limits) -> (String, String) {
    let lines = REFUSALS.lines().skip_while(|line| !rule_fits(line, key, feature, limits)).skip(1);
    let lines: Vec<_> = lines.take_while(|line| line.starts_with(' ')).map(str::trim).collect();
    let text = lines.join(" ");
    let (meaning, fix) = text.split_once(" fix: ").unwrap_or((&text, ""));
    (expand(meaning, feature, limits), expand(fix, feature, limits))
}

/// Whether a line is the head of a rule that fits.
fn rule_fits(line: &str, key: &str, feature: Feature, limits: &Limits) -> bool {
    let mut columns = line.split('|').map(|column| column.split(',').map(str::trim));
    let (Some(mut keys), Some(mut features)) = (columns.next(), columns.next()) else {
        return false;
    };
    keys.any(|name| name == key || name == "*")
        && features.any(|name| match name.strip_prefix('@') {
            Some(kind) => kinds(feature).any(|one| one == kind),
            None => name == feature.name() || name == "*",
        })
        && columns.next().into_iter().flatten().all(|condition| match condition.strip_prefix('!') {
            Some(negated) => !holds(negated, feature, limits),
            None => holds(condition, feature, limits),
        })
}

fn kinds(feature: Feature) -> impl Iterator<Item = &'static str> {
    features()
        .find(|(name, ..)| *name == feature.name())
        .into_iter()
        .flat_map(|(_, _, kinds)| kinds.split_ascii_whitespace())
}

/// The name of each feature, the first kernel that has it, and its kinds.
fn features() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    REFUSALS.lines().filter_map(|line| {
        let mut columns = line.strip_prefix("feature |")?.split('|').map(str::trim);
        Some((columns.next()?, columns.next()?, columns.next()?))
    })
}

/// Whether a condition of a rule holds.
fn holds(condition: &str, feature: Feature, limits: &Limits) -> bool {
    match condition {
        "since" => feature.since().is_some(),
        "seccomp" => limits.seccomp == Some(2),
        "io_uring_disabled=1" => limits.io_uring_disabled == Some(1),
        "io_uring_disabled=2" => limits.io_uring_disabled == Some(2),
        "group" => limits.io_uring_group.is_some_and(|group| group >= 0),
        "sys_admin" => limits.has(Capability::SysAdmin) == Some(true),
        "ipc_lock" => limits.has(Capability::IpcLock) == Some(true),
        "memlock" => limits.memlock.soft.is_some() && !limits.may_lock_all_memory(),
        "some_memlock" => {
            limits.memlock.soft.is_some_and(|soft| soft > 0) && !limits.may_lock_all_memory()
        }
        "aio_max" => limits.aio_max_nr.is_some(),
        "aio_nr" => limits.aio_nr.is_some(),
        _ => unreachable!("refusals.txt: no condition is called {condition}"),
    }
}

/// Replaces the names in braces.
fn expand(text: &str, feature: Feature, limits: &Limits) -> String {
    let mut expanded = String::new();
    let mut rest = text;
    while let Some((before, (name, after))) =
        rest.split_once('{').and_then(|(before, rest)| Some((before, rest.split_once('}')?)))
    {
        expanded += before;
        expanded += &value_of(name, feature, limits);
        rest = after;
    }
    expanded + rest
}

/// What a name in braces stands for.
fn value_of(name: &str, feature: Feature, limits: &Limits) -> String {
    let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
    match name {
        "feature" => feature.name().to_owned(),
        "since" => match feature.since() {
            Some((major, minor)) => format!("{major}.{minor}"),
            None => String::new(),
        },
        "group" => limits.io_uring_group.map_or(String::new(), |group| group.to_string()),
        "nofile" => limits.nofile.to_string(),
        "memlock" => bytes_text(limits.memlock.soft.unwrap_or_default()),
        "aio_max" => number(limits.aio_max_nr),
        "aio_nr" => number(limits.aio_nr),
        "aio_more" => number(limits.aio_max_nr.map(|max| max.saturating_mul(4).max(1 << 20))),
        _ => text_of(name, feature, limits).0,
    }
}

#[cfg(all(test, ringway_linux))]
mod tests {
    use super::super::limits::Limit;
    use super::*;
    use Feature::*;

    const FEATURES: [Feature; 30] = [
        Uring,
        Kaio,
        Threads,
        CqSize,
        Clamp,
        RDisabled,
        SubmitAll,
        CoopTaskrun,
        TaskrunFlag,
        SingleIssuer,
        DeferTaskrun,
        NoSqArray,
        SqPoll,
        AttachWq,
        IoPoll,
        Passthrough,
        ExtArg,
        FixedBuffers,
        FixedFiles,
        EventFd,
        IoWqWorkers,
        CachedByIoWq,
        RingFd,
        OpcodeTable,
        KaioUserRing,
        KaioResFd,
        KaioFsync,
        DirectIo,
        DontCache,
        AtomicWrite,
    ];

    /// The Go module takes the kernels from the table.
    #[test]
    fn the_table_has_the_features() {
        let since = |feature: Feature| match feature.since() {
            Some((major, minor)) => format!("{major}.{minor}"),
            None => "-".to_owned(),
        };
        let known: Vec<_> = FEATURES.map(|one| (one.name(), since(one))).into();
        let listed: Vec<_> = features().map(|(name, since, _)| (name, since.to_owned())).collect();
        assert_eq!(listed, known);
    }

    /// The rules: what stands in their columns.
    fn heads() -> impl Iterator<Item = [Vec<&'static str>; 3]> {
        let is_head = |line: &&str| line.contains('|') && !line.starts_with(['#', ' ']);
        REFUSALS.lines().filter(is_head).filter(|line| !line.starts_with("feature |")).map(|line| {
            let mut columns = line.split('|');
            [(); 3].map(|()| {
                let words = columns.next().into_iter().flat_map(|column| column.split(','));
                words.map(str::trim).collect()
            })
        })
    }

    /// Limits with which each condition holds, or does not.
    fn limits() -> [Limits; 4] {
        let base = Limits {
            memlock: Limit { soft: Some(8 << 20), hard: None },
            io_uring_disabled: None,
            io_uring_group: None,
            aio_max_nr: None,
            aio_nr: None,
            capabilities: None,
            seccomp: None,
            initial_user_namespace: Some(false),
            ..Limits::of_this_process()
        };
        let root = u64::MAX;
        [
            Limits { io_uring_disabled: Some(1), io_uring_group: Some(7), ..base.clone() },
            Limits { io_uring_disabled: Some(2), aio_max_nr: Some(1), ..base.clone() },
            Limits { capabilities: Some(root), aio_max_nr: Some(1), aio_nr: Some(1), ..base },
            Limits { seccomp: Some(2), memlock: Limit::UNLIMITED, ..base },
        ]
    }

    #[test]
    fn every_rule_is_understood() {
        assert!(heads().count() > 60);
        for [keys, features, conditions] in heads() {
            for name in features {
                let is_kind =
                    matches!(name.strip_prefix('@'), Some("ring" | "flag" | "part" | "kaio"));
                assert!(
                    name == "*" || is_kind || FEATURES.iter().any(|one| one.name() == name),
                    "{name}"
                );
            }
            for name in keys {
                let is_errno = (1..134).any(|errno| errno_name(errno) == Some(name));
                assert!(is_errno || !name.starts_with('E'), "{name}");
            }
            for name in conditions {
                // One that is not known panics.
                let name = name.trim_start_matches('!');
                assert!(limits().iter().any(|limits| holds(name, Uring, limits)), "{name}");
            }
        }
    }

    #[test]
    fn every_text_is_complete() {
        let (unexpected, _) = text_of("", Uring, &limits()[0]);
        let keys: Vec<_> = heads().flat_map(|[keys, ..]| keys).collect();
        for limits in limits() {
            for feature in FEATURES {
                for errno in keys.iter().filter(|key| key.starts_with('E')) {
                    let (meaning, fix) = text_of(errno, feature, &limits);
                    let text = format!("{feature}, {errno}: {meaning}; fix: {fix}");
                    assert!(!meaning.is_empty() && !text.contains(['{', '}']), "{text}");
                    assert!(!text.contains("  "), "{text}");
                    assert_eq!(fix.is_empty(), meaning == unexpected, "{text}");
                    assert!(fix.is_empty() || !text.contains(&unexpected), "{text}");
                }
            }
        }
    }
}
