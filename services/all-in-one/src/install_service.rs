//! The server as a service of systemd: writes its unit and its first settings, and creates its user. The Debian package does the same by
//! its own means, with the same two texts.

use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;

/// The unit, with the paths of the Debian package.
const UNIT: &str = include_str!("../../../docs/examples/tinwright.service");
/// The settings that are written if there are none.
const SETTINGS: &str = include_str!("../../../packaging/tinwright.toml");
/// The unit's file, below the root directory.
const UNIT_FILE: &str = "etc/systemd/system/tinwright.service";
/// The unit's file if the Debian package is installed, below the root directory.
const PACKAGED_UNIT_FILES: [&str; 2] =
    ["usr/lib/systemd/system/tinwright.service", "lib/systemd/system/tinwright.service"];
/// A directory that exists while systemd is the first process (sd_booted(3)), below the root directory.
const SYSTEMD_MARK: &str = "run/systemd/system";
/// Directories that the unit hides from the service (ProtectHome, PrivateTmp, PrivateDevices).
const HIDDEN: [&str; 6] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp", "/dev"];

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run the server with this file of settings, which is written if it does not exist
    #[arg(long, value_name = "FILE", default_value = DEFAULT_SETTINGS_FILE)]
    config: PathBuf,
    /// Run the server as this user, who is created if there is none of this name
    #[arg(long, value_name = "NAME", default_value = DEFAULT_USER)]
    user: String,
    /// Print what would be done and the unit, and change nothing
    #[arg(long)]
    dry_run: bool,
}

const DEFAULT_SETTINGS_FILE: &str = "/etc/tinwright/tinwright.toml";
const DEFAULT_USER: &str = "tinwright";

/// The result for a file or user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Created,
    Changed,
    Unchanged,
}

impl Change {
    fn word(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Changed => "changed",
            Self::Unchanged => "unchanged",
        }
    }
}

/// The changes to be made on a host.
#[derive(Debug)]
struct Plan<'a> {
    user: (&'a str, Change),
    settings: (PathBuf, Change),
    unit: (PathBuf, Change),
    text: String,
}

/// Carries out the command on this host. Prints a line for each part, and the command to type next.
pub(crate) fn run(options: &Options, out: &mut dyn Write) -> anyhow::Result<()> {
    let root = Path::new("/");
    if let Some(file) = packaged_unit(root) {
        return keep_packaged(options, &file, out);
    }
    let program = std::env::current_exe().context("finding this program")?;
    let plan = Plan::new(options, &program, root)?;
    if options.dry_run {
        plan.print(" (dry run)", out)?;
        return Ok(write!(out, "\n{}", plan.text)?);
    }
    check_host(root)?;
    plan.carry_out()?;
    plan.print("", out)?;
    if plan.unit.1 != Change::Unchanged {
        system_command("systemctl", &["daemon-reload"])?;
    }
    let is_active = succeeds("systemctl", &["is-active", "--quiet", "tinwright"]);
    Ok(writeln!(out, "{}", plan.next(is_active))?)
}

/// Returns the file of the unit that the Debian package has installed, if it has.
fn packaged_unit(root: &Path) -> Option<PathBuf> {
    PACKAGED_UNIT_FILES.iter().map(|file| root.join(file)).find(|file| file.exists())
}

/// Says that the package's unit stays: one in /etc would hide it, and so each later version of it.
fn keep_packaged(options: &Options, file: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let is_default =
        options.user == DEFAULT_USER && options.config == Path::new(DEFAULT_SETTINGS_FILE);
    let file = file.display();
    anyhow::ensure!(
        is_default,
        "the Debian package has installed {file}: change user and file by `systemctl edit tinwright`"
    );
    writeln!(out, "{file} unchanged: the Debian package has installed it")?;
    Ok(writeln!(out, "next: systemctl enable --now tinwright")?)
}

/// Fails if the host has no systemd, or the caller may not change it.
fn check_host(root: &Path) -> anyhow::Result<()> {
    anyhow::ensure!(
        root.join(SYSTEMD_MARK).is_dir(),
        "this host does not run systemd: have its own service manager start `tinwright serve`"
    );
    anyhow::ensure!(
        rustix::process::geteuid().is_root(),
        "run this as root, for example with sudo: it writes {}",
        root.join(UNIT_FILE).display()
    );
    Ok(())
}

impl<'a> Plan<'a> {
    /// Compares the host whose root directory is `root` with what it is to have. The service runs `program`.
    fn new(options: &'a Options, program: &Path, root: &Path) -> anyhow::Result<Self> {
        let config = std::path::absolute(&options.config).context("the path of --config")?;
        let text = unit(program, &config, &options.user)?;
        let user = match succeeds("id", &["-u", &options.user]) {
            true => Change::Unchanged,
            false => Change::Created,
        };
        let settings = root.join(config.strip_prefix("/")?);
        let of_settings = if settings.exists() { Change::Unchanged } else { Change::Created };
        let unit = root.join(UNIT_FILE);
        let of_unit = match fs::read_to_string(&unit) {
            Ok(former) if former == text => Change::Unchanged,
            Ok(_) => Change::Changed,
            Err(_) => Change::Created,
        };
        Ok(Self {
            user: (&options.user, user),
            settings: (settings, of_settings),
            unit: (unit, of_unit),
            text,
        })
    }

    fn carry_out(&self) -> anyhow::Result<()> {
        let (user, change) = self.user;
        if change == Change::Created {
            let home = ["--home-dir", "/var/lib/tinwright", "--no-create-home"];
            let kind = ["--system", "--user-group", "--shell", "/usr/sbin/nologin"];
            system_command("useradd", &[&kind[..], &home, &[user]].concat())?;
        }
        if self.settings.1 == Change::Created {
            write(&self.settings.0, SETTINGS)?;
        }
        if self.unit.1 != Change::Unchanged {
            write(&self.unit.0, &self.text)?;
        }
        Ok(())
    }

    /// Prints a line for each part, with `remark` at its end.
    fn print(&self, remark: &str, out: &mut dyn Write) -> anyhow::Result<()> {
        let (settings, unit) = (self.settings.0.display(), self.unit.0.display());
        writeln!(out, "user {} {}{remark}", self.user.0, self.user.1.word())?;
        writeln!(out, "{settings} {}{remark}", self.settings.1.word())?;
        Ok(writeln!(out, "{unit} {}{remark}", self.unit.1.word())?)
    }

    /// Returns the line with the command to type next.
    fn next(&self, is_active: bool) -> &'static str {
        match (is_active, self.unit.1) {
            (false, _) => "next: systemctl enable --now tinwright",
            (true, Change::Unchanged) => "the server runs: systemctl status tinwright",
            (true, _) => "next: systemctl restart tinwright",
        }
    }
}

/// Returns the unit that runs `program` with the settings in `config` as `user`.
fn unit(program: &Path, config: &Path, user: &str) -> anyhow::Result<String> {
    let is_user = user.chars().all(|c| c.is_ascii_alphanumeric() || "_-".contains(c));
    anyhow::ensure!(is_user && !user.is_empty(), "{user:?} cannot be the name of a user");
    let hidden = |path: &Path| HIDDEN.iter().find(|directory| path.starts_with(directory));
    if let Some(directory) = hidden(program) {
        let program = program.display();
        anyhow::bail!(
            "a service sees nothing below {directory}: run `install {program} /usr/local/bin`, \
             then `/usr/local/bin/tinwright install-service`"
        );
    }
    if let Some(directory) = hidden(config) {
        let config = config.display();
        anyhow::bail!(
            "a service sees nothing below {directory}: give --config another path than {config}"
        );
    }
    let start = format!("ExecStart={} serve --config {}", word(program)?, word(config)?);
    let user = format!("User={user}");
    let lines = UNIT.lines().map(|line| match line.split_once('=') {
        Some(("ExecStart", _)) => start.as_str(),
        Some(("User", _)) => user.as_str(),
        _ => line,
    });
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

/// Returns `path` as a word of a command in a unit, where other characters have meanings of their own (systemd.service(5)).
fn word(path: &Path) -> anyhow::Result<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._+-".contains(c);
    let text = path.to_str().filter(|text| text.starts_with('/') && text.chars().all(is_plain));
    text.with_context(|| format!("{}: only letters, digits and /._+- are allowed", path.display()))
}

/// Writes a file that everybody may read, and its directory if it is missing.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let written = || {
        let missing = path.parent().filter(|parent| !parent.exists());
        if let Some(parent) = missing {
            fs::create_dir_all(parent)?;
            fs::set_permissions(parent, Permissions::from_mode(0o755))?;
        }
        fs::write(path, text)?;
        // The umask may have left nothing for the server's user.
        fs::set_permissions(path, Permissions::from_mode(0o644))
    };
    written().with_context(|| format!("writing {}", path.display()))
}

/// Runs a command of the system. Fails unless it succeeds.
fn system_command(program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let line = || format!("{program} {}", arguments.join(" "));
    let output = Command::new(program).args(arguments).output().with_context(line)?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{}: {}", line(), stderr.trim());
    Ok(())
}

/// True if a command of the system succeeds.
fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests;
