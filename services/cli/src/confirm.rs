//! Questions before data is lost: asked at a terminal; elsewhere the command is refused unless it has `--yes`.

use std::io::{BufRead, IsTerminal as _, Write as _};
use std::time::SystemTime;

use anyhow::Context as _;
use tinwright::instance::v1::Instance;
use tinwright::workflow::v1::PlannedErasure;

use crate::output::age;

/// Passes if `yes` is given, or the answer to `question` is yes. Fails without a terminal.
pub(crate) fn require(question: &str, yes: bool) -> anyhow::Result<()> {
    if yes {
        return Ok(());
    }
    anyhow::ensure!(is_possible(), "{question} Confirm it with --yes");
    anyhow::ensure!(ask(question, &mut std::io::stdin().lock())?, "nothing was changed");
    Ok(())
}

/// True if there is a terminal to ask at.
pub(crate) fn is_possible() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// Asks `question` on standard error, and returns true if the answer is yes.
pub(crate) fn ask(question: &str, answers: &mut dyn BufRead) -> anyhow::Result<bool> {
    let mut error = std::io::stderr();
    write!(error, "{question} [y/N] ").and_then(|()| error.flush())?;
    let mut answer = String::new();
    answers.read_line(&mut answer).context("reading the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_lowercase().as_str()))
}

/// Describes a machine in use, such as `node-2 (web-1, in use for 3d)`.
pub(crate) fn in_use(machine: &str, instance: &Instance, now: SystemTime) -> String {
    let since = instance.install_time.or(instance.create_time);
    let name = match instance.hostname.as_str() {
        "" => &instance.id,
        hostname if hostname == machine => {
            return format!("{machine} (in use for {})", age(since, now));
        }
        hostname => hostname,
    };
    format!("{machine} ({name}, in use for {})", age(since, now))
}

/// Describes what `erasures` erase: the disks that they name.
pub(crate) fn erased(erasures: &[PlannedErasure]) -> String {
    let mut disks: Vec<_> = erasures.iter().flat_map(|it| &it.disks).map(String::as_str).collect();
    disks.sort_unstable();
    disks.dedup();
    let is_known = erasures.iter().all(|erasure| !erasure.disks.is_empty());
    if disks.contains(&"all") {
        "all disks".to_owned()
    } else if is_known {
        disks.join(" and ")
    } else {
        "disks".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_yes_confirms() {
        for (answer, is_yes) in
            [("y\n", true), ("YES\n", true), ("\n", false), ("", false), ("n\n", false)]
        {
            assert_eq!(ask("Erase a?", &mut answer.as_bytes()).unwrap(), is_yes, "{answer:?}");
        }
    }

    #[test]
    fn without_a_terminal_yes_is_needed() {
        assert!(require("Erase a?", true).is_ok());
        if !is_possible() {
            let refused = require("Erase a?", false).unwrap_err().to_string();
            assert_eq!(refused, "Erase a? Confirm it with --yes");
        }
    }

    #[test]
    fn a_machine_in_use_is_named_with_its_instance_and_time() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(3 * 24 * 3600);
        let created = Some(SystemTime::UNIX_EPOCH.into());
        let web = Instance { hostname: "web-1".into(), create_time: created, ..Default::default() };
        assert_eq!(in_use("node-2", &web, now), "node-2 (web-1, in use for 3d)");
        assert_eq!(in_use("web-1", &web, now), "web-1 (in use for 3d)");
    }

    #[test]
    fn disks_that_are_not_all_known_are_not_counted() {
        let erasure = |disks: &[&str]| PlannedErasure {
            disks: disks.iter().map(ToString::to_string).collect(),
            ..PlannedErasure::default()
        };
        assert_eq!(erased(&[erasure(&["/dev/sda"]), erasure(&["/dev/sda"])]), "/dev/sda");
        assert_eq!(erased(&[erasure(&["/dev/sdb", "/dev/sda"])]), "/dev/sda and /dev/sdb");
        assert_eq!(erased(&[erasure(&["all"])]), "all disks");
        assert_eq!(erased(&[erasure(&["all"]), erasure(&["/dev/sda"])]), "all disks");
        assert_eq!(erased(&[erasure(&["all"]), erasure(&[])]), "all disks");
        assert_eq!(erased(&[erasure(&["/dev/sda"]), erasure(&[])]), "disks");
    }
}
