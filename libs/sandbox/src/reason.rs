//! Explains why a host cannot run the sandbox.

use std::fs;
use std::path::Path;

use crate::link::Fault;

/// Returns the failed step, and the settings of the host that can explain it.
pub(crate) fn explain(fault: &Fault) -> String {
    let causes = causes(Path::new("/proc"), rustix::process::geteuid().is_root());
    std::iter::once(fault.to_string()).chain(causes).collect::<Vec<_>>().join("; ")
}

/// Returns the settings below `proc` that keep a process from creating namespaces.
fn causes(proc: &Path, is_root: bool) -> Vec<String> {
    let read = |path: &str| {
        fs::read_to_string(proc.join(path)).map(|text| text.trim().to_owned()).unwrap_or_default()
    };
    let mut causes = Vec::new();
    let mut check = |path: &str, bad: &str, applies: bool| {
        if applies && read(path) == bad {
            causes.push(format!("/proc/{path} is {bad}"));
        }
    };
    for kind in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"] {
        check(&format!("sys/user/max_{kind}_namespaces"), "0", true);
    }
    check("sys/kernel/unprivileged_userns_clone", "0", !is_root);
    check("sys/kernel/apparmor_restrict_unprivileged_userns", "1", !is_root);
    if !proc.join("self/ns/user").exists() {
        causes.push("/proc/self/ns/user is missing: no CONFIG_USER_NS, or no /proc".to_owned());
    }
    let status = read("self/status");
    if status.lines().any(|line| line.starts_with("Seccomp:") && line.ends_with('2')) {
        causes.push("/proc/self/status: a seccomp filter is active, as in a container".to_owned());
    }
    let profile = read("self/attr/current");
    if !profile.is_empty() && profile != "unconfined" {
        causes.push(format!("/proc/self/attr/current: security profile {profile:?}"));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(files: &[(&str, &str)]) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for (path, text) in [("self/ns/user", "")].iter().chain(files) {
            let path = directory.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        directory
    }

    #[test]
    fn each_setting_that_denies_namespaces_is_named() {
        for (path, text, expected) in [
            ("sys/user/max_user_namespaces", "0\n", "max_user_namespaces is 0"),
            ("sys/kernel/unprivileged_userns_clone", "0\n", "userns_clone is 0"),
            ("sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "userns is 1"),
            ("self/status", "Name:\ta\nSeccomp:\t2\n", "seccomp filter"),
            ("self/attr/current", "docker-default (enforce)\n", "docker-default"),
        ] {
            let causes = causes(host(&[(path, text)]).path(), false);
            assert!(causes.len() == 1 && causes[0].contains(expected), "{path}: {causes:?}");
        }
    }

    #[test]
    fn a_host_that_allows_namespaces_gives_no_cause() {
        let host = host(&[
            ("sys/user/max_user_namespaces", "96365\n"),
            ("sys/kernel/unprivileged_userns_clone", "1\n"),
            ("self/status", "Seccomp:\t0\n"),
            ("self/attr/current", "unconfined\n"),
        ]);
        assert_eq!(causes(host.path(), false), Vec::<String>::new());
    }

    #[test]
    fn settings_for_ordinary_users_do_not_concern_root() {
        let host = host(&[("sys/kernel/unprivileged_userns_clone", "0\n")]);
        assert_eq!(causes(host.path(), true), Vec::<String>::new());
        let missing = causes(tempfile::tempdir().unwrap().path(), true);
        assert!(missing[0].contains("CONFIG_USER_NS"), "{missing:?}");
    }
}
