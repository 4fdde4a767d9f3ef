//! Whether the process may call `mincore(2)`. A filter of system calls (seccomp) may end the
//! process for a call that it does not list, and systemd's `SystemCallFilter=@system-service` does:
//! so a trial could be the last call. The default profiles of container engines allow it.

use crate::lookup::Lookup;
use crate::refusal::limits::Limits;
use std::env;
use std::path::Path;

/// Decided once: reads a few files below `/proc`.
pub(super) fn is_allowed() -> bool {
    static KNOWN: Lookup<bool> = Lookup::new();
    *KNOWN.get_or_look_up(|| {
        is_allowed_by(Surroundings {
            seccomp: Limits::of_this_process().seccomp,
            is_in_container: Path::new("/.dockerenv").exists()
                || Path::new("/run/.containerenv").exists()
                || env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
            is_service: env::var_os("INVOCATION_ID").is_some(),
        })
    })
}

/// What shows who has installed a filter.
struct Surroundings {
    /// `Seccomp` in `/proc/thread-self/status`: 0 off, 1 strict, 2 a filter.
    seccomp: Option<u32>,
    /// An engine whose default profile allows the call has left a trace.
    is_in_container: bool,
    /// systemd has started the process, or one that it descends from.
    is_service: bool,
}

fn is_allowed_by(surroundings: Surroundings) -> bool {
    let Surroundings { seccomp, is_in_container, is_service } = surroundings;
    match seccomp {
        Some(0) => true,
        Some(2) => is_in_container && !is_service,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_filter_that_is_known_to_allow_it_is_trusted() {
        let mut allowed = Vec::new();
        for seccomp in [None, Some(0), Some(1), Some(2), Some(3)] {
            for (is_in_container, is_service) in
                [(false, false), (false, true), (true, false), (true, true)]
            {
                let surroundings = Surroundings { seccomp, is_in_container, is_service };
                if is_allowed_by(surroundings) {
                    allowed.push((seccomp, is_in_container, is_service));
                }
            }
        }
        let without_filter = [(false, false), (false, true), (true, false), (true, true)]
            .map(|(is_in_container, is_service)| (Some(0), is_in_container, is_service));
        assert_eq!(allowed, [&without_filter[..], &[(Some(2), true, false)]].concat());
    }
}
