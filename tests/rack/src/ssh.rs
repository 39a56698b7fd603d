//! SSH to installed machines, from outside the lab's namespace.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context as _;
use setup::run;

use crate::lab::Lab;
use crate::machines::Machine;

/// The user whom cloud-init creates in the image, without a password.
const USER: &str = "debian";

/// A key of this rack, and a configuration of ssh with which each machine is a host.
#[derive(Clone, Debug)]
pub struct Ssh {
    /// The public key, as one line of `authorized_keys`.
    pub public_key: String,
    config: PathBuf,
}

impl Ssh {
    /// Creates key and configuration in the lab, which is removed with them.
    pub fn new(lab: &Lab) -> anyhow::Result<Self> {
        let (key, config) = (lab.path("ssh_key"), lab.path("ssh_config"));
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "operator@rack", "-f"]).arg(&key);
        run(&mut keygen)?;
        // Each installation creates new host keys, so a machine's former ones are not stored.
        let text = format!(
            "Host *
  User {USER}
  IdentityFile {key}
  IdentitiesOnly yes
  UserKnownHostsFile /dev/null
  StrictHostKeyChecking no
  LogLevel ERROR
  ConnectTimeout 60
  ProxyCommand nsenter --net=/run/netns/{namespace} busybox nc %h %p
",
            key = key.display(),
            namespace = lab.name(),
        );
        std::fs::write(&config, text)?;
        let public_key = std::fs::read_to_string(key.with_extension("pub"))?.trim().to_owned();
        Ok(Self { public_key, config })
    }

    /// Makes `machine` a host that ssh finds by its name.
    pub fn add_host(&self, machine: &Machine) -> anyhow::Result<()> {
        let mut config = File::options().append(true).open(&self.config).context("ssh_config")?;
        Ok(writeln!(config, "Host {}\n  HostName {}", machine.name, machine.address)?)
    }

    /// Returns the command line that logs in to `machine`, for any shell of root on this host.
    pub fn command_line(&self, machine: &Machine) -> String {
        format!("ssh -F {} {}", self.config.display(), machine.name)
    }
}
