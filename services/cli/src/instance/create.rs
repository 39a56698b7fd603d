//! `instance create`: from files or from options.

use std::io::Write;
use std::path::PathBuf;

use tinwright::instance::v1 as pb;

use super::{Goal, wait};
use crate::connect::Show;
use crate::noun::{self, Files, Written as _};
use crate::output::{self, say};
use crate::{hardware, input, template};

/// A new instance.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// YAML or JSON file with one or more instances; - for standard input
    #[arg(short, long = "file", value_name = "FILE", required_unless_present = "machine")]
    files: Vec<PathBuf>,
    /// The machine to occupy
    #[arg(
        long = "hardware",
        id = "machine",
        value_name = "ID|NAME|MAC|ADDRESS",
        conflicts_with = "files"
    )]
    machine: Option<String>,
    /// The template that installs the machine; without one nothing is installed
    #[arg(long, value_name = "NAME|ID", requires = "machine")]
    template: Option<String>,
    /// Host name [default: the machine's own]
    #[arg(long, value_name = "NAME", requires = "machine")]
    hostname: Option<String>,
    /// File with OpenSSH public keys; may be repeated
    #[arg(long = "ssh-key", value_name = "FILE", requires = "machine")]
    ssh_keys: Vec<PathBuf>,
    /// File with user data, for cloud-init and similar programs
    #[arg(long, value_name = "FILE", requires = "machine")]
    userdata: Option<PathBuf>,
    /// File with vendor data, for cloud-init
    #[arg(long, value_name = "FILE", requires = "machine")]
    vendor_data: Option<PathBuf>,
    /// File with a network configuration (netplan, version 2), for cloud-init [default: made from the machine's record]
    #[arg(long, value_name = "FILE", requires = "machine")]
    network_config: Option<PathBuf>,
    /// Value for a placeholder of the template; may be repeated
    #[arg(long = "value", value_name = "KEY=VALUE", value_parser = input::pair, requires = "machine")]
    values: Vec<(String, String)>,
    /// Label, for selecting; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair, requires = "machine")]
    labels: Vec<(String, String)>,
    /// Wait until it is active; fail if it fails
    #[arg(long, requires = "machine")]
    wait: bool,
    /// Server and output format
    #[command(flatten)]
    show: Show,
}

/// Creates the instances that `create` describes.
pub(super) async fn run(create: Create, out: &mut dyn Write) -> anyhow::Result<()> {
    let Some(machine) = &create.machine else {
        let files = Files { files: create.files, show: create.show };
        return noun::create::<pb::Instance>(files, out).await;
    };
    let mut instance = described(&create)?;
    let channel = create.show.connection.open().await?;
    instance.hardware_id = hardware::id(&channel, machine).await?;
    if let Some(name) = &create.template {
        instance.template_id = template::id(&channel, name).await?;
    }
    let made = instance.create(&channel).await?;
    let id = made.id.clone();
    say(out, &output::list(&[made], create.show.output)?)?;
    if create.wait { wait(&channel, &id, Goal::Active).await } else { Ok(()) }
}

/// Returns the instance, without what is looked up at the server.
fn described(create: &Create) -> anyhow::Result<pb::Instance> {
    let mut ssh_keys = Vec::new();
    for file in &create.ssh_keys {
        ssh_keys.extend(keys(&input::text(file)?));
    }
    let text = |file: &Option<PathBuf>| -> anyhow::Result<String> {
        Ok(file.as_deref().map(input::text).transpose()?.unwrap_or_default())
    };
    Ok(pb::Instance {
        hostname: create.hostname.clone().unwrap_or_default(),
        ssh_keys,
        userdata: text(&create.userdata)?,
        vendor_data: text(&create.vendor_data)?,
        network_config: text(&create.network_config)?,
        template_values: create.values.iter().cloned().collect(),
        labels: create.labels.iter().cloned().collect(),
        ..pb::Instance::default()
    })
}

/// Returns the keys in a file: one a line, without empty lines and comments, as sshd reads it.
fn keys(text: &str) -> Vec<String> {
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_keys_is_read_as_sshd_reads_it() {
        let text = "# mine\nssh-ed25519 AAAA me@here\n\n  ssh-rsa BBBB\r\n";
        assert_eq!(keys(text), ["ssh-ed25519 AAAA me@here", "ssh-rsa BBBB"]);
    }
}
