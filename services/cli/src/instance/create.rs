//! `instance create`: from files or from options.

use std::path::PathBuf;

use tinwright::hardware::v1::DiskHint;
use tinwright::instance::v1 as pb;
use tonic::transport::Channel;

use super::{Goal, wait};
use crate::output::{Format, print_list};
use crate::resource::{self, FileOptions, FromFiles as _};
use crate::{hardware, input, template};

/// Options of a new instance.
#[derive(Debug, clap::Args)]
pub struct CreateInstance {
    /// Read one or more instances from this YAML or JSON file; - for standard input
    #[arg(short, long = "file", value_name = "FILE", required_unless_present = "machine")]
    files: Vec<PathBuf>,
    /// Occupy this machine
    #[arg(
        long = "hardware",
        id = "machine",
        value_name = "ID|NAME|MAC|ADDRESS",
        conflicts_with = "files"
    )]
    machine: Option<String>,
    /// Install the machine with this template [default: install nothing]
    #[arg(long, value_name = "NAME|ID", requires = "machine")]
    template: Option<String>,
    /// Set the host name [default: the machine's own]
    #[arg(long, value_name = "NAME", requires = "machine")]
    hostname: Option<String>,
    /// Read OpenSSH public keys from this file; may be repeated
    #[arg(long = "ssh-key", value_name = "FILE", requires = "machine")]
    ssh_keys: Vec<PathBuf>,
    /// Read user data, for cloud-init and similar programs, from this file
    #[arg(long, value_name = "FILE", requires = "machine")]
    userdata: Option<PathBuf>,
    /// Read vendor data, for cloud-init, from this file
    #[arg(long, value_name = "FILE", requires = "machine")]
    vendor_data: Option<PathBuf>,
    /// Read a network configuration (netplan, version 2), for cloud-init, from this file [default: generated from the machine's record]
    #[arg(long, value_name = "FILE", requires = "machine")]
    network_config: Option<PathBuf>,
    /// Set the value of a placeholder of the template; may be repeated
    #[arg(long = "value", value_name = "KEY=VALUE", value_parser = input::pair, requires = "machine")]
    values: Vec<(String, String)>,
    /// Set the root disk, in the form of `hardware update` [default: the machine's own]
    #[arg(long, value_name = "KEY=VALUE,…", requires = "machine")]
    root_disk: Option<DiskHint>,
    /// Add a label, for selecting; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair, requires = "machine")]
    labels: Vec<(String, String)>,
    /// Wait until it is active; fail if it fails
    #[arg(long, requires = "machine")]
    wait: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Creates the instances that `create` describes.
pub(super) async fn run(
    create: CreateInstance,
    channel: &Channel,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    let CreateInstance { output, wait: until_active, .. } = create;
    let Some(machine) = &create.machine else {
        let files = FileOptions { files: create.files, output };
        return resource::create::<pb::Instance>(files, channel, out).await;
    };
    let mut instance = from_options(&create)?;
    instance.hardware_id = hardware::id(channel, machine).await?;
    if let Some(name) = &create.template {
        instance.template_id = template::id(channel, name).await?;
    }
    let created = instance.create(channel).await?;
    print_list(out, std::slice::from_ref(&created), output)?;
    if until_active { wait(channel, &created.id, Goal::Active).await } else { Ok(()) }
}

/// Returns the instance, without the ids that the server has to look up.
fn from_options(create: &CreateInstance) -> anyhow::Result<pb::Instance> {
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
        root_disk: create.root_disk.clone().map(Box::new),
        ..pb::Instance::default()
    })
}

/// Returns the keys in a file, one per line, without empty lines and comments, as sshd does.
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
