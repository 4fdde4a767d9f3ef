//! Guesses the container or sandbox of this process, for reports only: no decision depends on it.

use std::env;
use std::fs;
use std::path::Path;

/// Traces that containers leave.
#[derive(Default)]
struct Clues {
    /// `/.dockerenv` exists.
    docker_file: bool,
    /// `/run/.containerenv` exists.
    podman_file: bool,
    /// `KUBERNETES_SERVICE_HOST` is set.
    kubernetes: bool,
    /// The variable `container`, or the text of `/run/systemd/container`.
    announced: Option<String>,
    /// The text of `/proc/self/cgroup`.
    cgroup: String,
    /// The text of `/proc/version`.
    version: String,
}

/// `docker`, `podman`, `kubernetes`, `gVisor`, `lxc`; `None` if nothing indicates a container.
pub(super) fn guess() -> Option<String> {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    from_clues(&Clues {
        docker_file: Path::new("/.dockerenv").exists(),
        podman_file: Path::new("/run/.containerenv").exists(),
        kubernetes: env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        announced: env::var("container")
            .ok()
            .or_else(|| fs::read_to_string("/run/systemd/container").ok()),
        cgroup: read("/proc/self/cgroup"),
        version: read("/proc/version"),
    })
}

fn from_clues(clues: &Clues) -> Option<String> {
    // gVisor has always reported this version.
    if clues.version.starts_with("Linux version 4.4.0") && clues.version.contains("Jan 10 15:06:54")
    {
        return Some("gVisor".to_owned());
    }
    if clues.kubernetes || clues.cgroup.contains("kubepods") {
        return Some("kubernetes".to_owned());
    }
    if clues.docker_file || clues.cgroup.contains("docker") {
        return Some("docker".to_owned());
    }
    if clues.podman_file || clues.cgroup.contains("libpod") {
        return Some("podman".to_owned());
    }
    if let Some(announced) = clues.announced.as_deref().map(str::trim)
        && !announced.is_empty()
    {
        return Some(announced.to_owned());
    }
    ["containerd", "lxc"].into_iter().find(|name| clues.cgroup.contains(name)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_clues_no_container_is_guessed() {
        let clues = Clues {
            cgroup: "0::/user.slice\n".to_owned(),
            version: "Linux version 6.1.0".to_owned(),
            ..Clues::default()
        };
        assert_eq!(from_clues(&clues), None);
    }

    #[test]
    fn the_outermost_container_is_named() {
        let clues = Clues { docker_file: true, kubernetes: true, ..Clues::default() };
        assert_eq!(from_clues(&clues).as_deref(), Some("kubernetes"));
        let clues = Clues {
            docker_file: true,
            version: "Linux version 4.4.0 #1 SMP Sun Jan 10 15:06:54 PST 2016".to_owned(),
            ..Clues::default()
        };
        assert_eq!(from_clues(&clues).as_deref(), Some("gVisor"));
    }

    #[test]
    fn the_name_given_by_the_manager_is_used() {
        let clues = Clues { announced: Some("systemd-nspawn\n".to_owned()), ..Clues::default() };
        assert_eq!(from_clues(&clues).as_deref(), Some("systemd-nspawn"));
    }
}
