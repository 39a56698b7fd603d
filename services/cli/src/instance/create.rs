//! `instance create`: from files or from options.

use std::collections::HashSet;
use std::path::PathBuf;

use anyhow::Context as _;
use prost::Name;
use runtime::Channel;
use tinwright::hardware::v1::{DiskHint, Hardware, Location, Model};
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::PowerManagement;
use tinwright::workflow::v1::planned_image::Check;
use tinwright::workflow::v1::{PlannedErasure, PlannedImage, Template};

use super::{Goal, wait};
use crate::connect::{Io, call};
use crate::failure::{self, Failures};
use crate::files::{self, Object};
use crate::input;
use crate::output::{self, Format, List, Row};
use crate::resource::from_files::{self, Sent};
use crate::resource::{self, FromFiles as _, Names, Resource as _};

/// Options of a new instance.
#[derive(Debug, clap::Args)]
pub struct CreateInstance {
    /// The instance, or the files
    #[command(flatten)]
    source: Source,
    /// Wait until each instance that was created is active; exit with 1 if one fails, or was not created
    #[arg(long)]
    wait: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Options of a plan.
#[derive(Debug, clap::Args)]
pub struct PlanInstance {
    /// The instance, or the files
    #[command(flatten)]
    source: Source,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Instances, in files or in options.
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("order")
    .args(["files", "machine", "model", "location", "machine_labels", "spread"])
    .multiple(true)
    .required(true))]
struct Source {
    /// Read one or more instances from this YAML or JSON file; - for standard input
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "order_options")]
    files: Vec<PathBuf>,
    /// The instance
    #[command(flatten)]
    order: Order,
}

/// An instance in options.
#[derive(Debug, clap::Args)]
#[group(id = "order_options", multiple = true)]
struct Order {
    /// Occupy this machine
    #[arg(long = "hardware", value_name = Hardware::NAMES)]
    #[arg(conflicts_with_all = ["model", "location", "zone", "machine_labels", "spread"])]
    machine: Option<String>,
    /// Occupy a free machine of this model
    #[arg(long, value_name = "NAME|ID")]
    model: Option<String>,
    /// Occupy a free machine in this location
    #[arg(long, value_name = "NAME|ID")]
    location: Option<String>,
    /// Occupy a free machine in this zone of the location
    #[arg(long, value_name = "NAME", requires = "location")]
    zone: Option<String>,
    /// Occupy a free machine with these labels
    #[arg(long = "labels", value_name = "KEY=VALUE,…", value_parser = input::pair)]
    #[arg(value_delimiter = ',')]
    machine_labels: Vec<(String, String)>,
    /// Spread instances with the same choice of machines evenly over the values of this label of machines, such as rack
    #[arg(long, value_name = "LABEL")]
    spread: Option<String>,
    /// Install this image: on the root disk, or as the template says
    #[arg(long, value_name = "NAME|ID", requires = "order")]
    image: Option<String>,
    /// Install the machine with this template. An instance without an image and a template needs --file: with a script, an image stack or `reserve_only`
    #[arg(long, value_name = "NAME|ID", requires = "order")]
    template: Option<String>,
    /// Set the host name [default: the machine's own]
    #[arg(long, value_name = "NAME", requires = "order")]
    hostname: Option<String>,
    /// Read OpenSSH public keys from this file; may be repeated
    #[arg(long = "ssh-key", value_name = "FILE", requires = "order")]
    ssh_keys: Vec<PathBuf>,
    /// Read user data, for cloud-init and similar programs, from this file: text, or an archive
    #[arg(long, value_name = "FILE", requires = "order")]
    userdata: Option<PathBuf>,
    /// Read vendor data, for cloud-init, from this file
    #[arg(long, value_name = "FILE", requires = "order")]
    vendor_data: Option<PathBuf>,
    /// Read a network configuration (netplan, version 2), for cloud-init, from this file [default: generated from the machine's record]
    #[arg(long, value_name = "FILE", requires = "order")]
    network_config: Option<PathBuf>,
    /// Set the value of a placeholder of the template; may be repeated
    #[arg(long = "value", value_name = "KEY=VALUE", value_parser = input::pair, requires = "order")]
    values: Vec<(String, String)>,
    /// Set the root disk, in the form of `hardware update` [default: the machine's own]
    #[arg(long, value_name = "KEY=VALUE,…", requires = "order")]
    root_disk: Option<DiskHint>,
    /// Switch the machine on by hand, as if it had no BMC (`power_management: none`)
    #[arg(long, requires = "order")]
    no_power_management: bool,
    /// Add a label, for selecting; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair, requires = "order")]
    labels: Vec<(String, String)>,
}

impl Order {
    /// Returns the instance with the ids that the server looks up; none without a machine or a placement.
    async fn instance(&self, channel: &Channel) -> anyhow::Result<Option<pb::Instance>> {
        let placement = pb::Placement {
            model_id: named::<Model>(self.model.as_deref()),
            location_id: named::<Location>(self.location.as_deref()),
            labels: self.machine_labels.iter().cloned().collect(),
            spread_label: self.spread.clone().unwrap_or_default(),
            zone: self.zone.clone().unwrap_or_default(),
        };
        let mut instance = from_options(self)?;
        match &self.machine {
            Some(machine) => {
                let found = Hardware::find_id(channel, machine).await;
                instance.hardware_id = found.map_err(with_tenant_hint)?;
            }
            None if placement == pb::Placement::default() => return Ok(None),
            None => instance.placement = Some(Box::new(placement)),
        }
        if let Some(name) = &self.template {
            instance.template_id = Template::find_id(channel, name).await?;
        }
        instance.image_id = self.image.clone().unwrap_or_default();
        Ok(Some(instance))
    }
}

/// Adds to the error that there is no such machine what a caller gives who sees none.
fn with_tenant_hint(error: anyhow::Error) -> anyhow::Error {
    match failure::is_not_found(&error) {
        true => anyhow::anyhow!(
            "{}; a caller with a tenant gives --model or --location instead",
            failure::line(&error)
        ),
        false => error,
    }
}

/// Returns the name in an option, which has a name or a reference; empty without it.
fn named<M: Name>(option: Option<&str>) -> String {
    option.map_or_else(String::new, |text| output::referenced::<M>(text).to_owned())
}

/// Creates the instances that `create` describes.
pub(super) async fn run(create: CreateInstance, io: &mut Io<'_>) -> anyhow::Result<()> {
    let CreateInstance { source: Source { files, order }, output, wait: until_active } = create;
    let Sent { objects: created, mut failures } = match order.instance(io.channel).await? {
        None => {
            let as_read = async |_: &mut pb::Instance| anyhow::Ok(());
            resource::create_objects(files::read_all(&files), output, as_read, io).await?
        }
        Some(instance) => {
            let objects = vec![instance.create(io.channel).await?];
            resource::print(&objects, output, io).await?;
            Sent { objects, failures: Failures::new(1) }
        }
    };
    if until_active {
        failures.report_now();
    }
    for instance in created.iter().filter(|_| until_active) {
        let reached = wait::until(io.channel, &instance.id, &instance.title(), Goal::Active).await;
        if let Err(error) = reached {
            failures.push(error);
        }
    }
    failures.into_result()
}

/// Prints what the creation of each instance would do.
pub(super) async fn plan(plan: PlanInstance, io: &mut Io<'_>) -> anyhow::Result<()> {
    let PlanInstance { source: Source { files, order }, output } = plan;
    let mut plans = Vec::new();
    let done = match order.instance(io.channel).await? {
        Some(instance) => {
            plans.extend(planned(io.channel, instance).await?);
            Ok(())
        }
        None => {
            let names = Names::new(io.channel, HashSet::new());
            let each = async |mut instance: pb::Instance, object: &Object, io: &mut Io<'_>| {
                let planned = async {
                    instance.resolve(&names).await?;
                    planned(io.channel, instance).await
                };
                plans.extend(planned.await.with_context(|| object.position.clone())?);
                Ok(())
            };
            from_files::for_each(&files, each, io).await
        }
    };
    if done.is_ok() || !plans.is_empty() {
        let list = List::new(&plans, |plan| &plan.hardware_id, "the server has no plan");
        list.print_rows(&output.into(), io.out).await?;
    }
    done
}

async fn planned(
    channel: &Channel,
    instance: pb::Instance,
) -> anyhow::Result<Option<pb::InstancePlan>> {
    let instance = Some(instance);
    let request = pb::CreateInstanceRequest { instance, validate_only: true, ..Default::default() };
    Ok(call(channel, request).await?.plan)
}

/// Returns the disks that `erasure` names, such as `write: /dev/sda`.
fn erasure_text(erasure: &PlannedErasure) -> String {
    let disks = match erasure.disks.as_slice() {
        [] => "disks that it reads from metadata, or does not show".to_owned(),
        disks => disks.join(" "),
    };
    format!("{}: {disks}", erasure.action)
}

/// Returns what is known of `image`, such as `write: http://198.51.100.1:7080/files/debian.raw: 404 Not Found`.
fn image_text(image: &PlannedImage) -> String {
    let known = match (image.check(), image.detail.as_str(), image.size_bytes) {
        (Check::Failed, detail, _) => detail.to_owned(),
        (Check::Found, _, 0) => "found".to_owned(),
        (Check::Found, _, bytes) => format!("found, {} MiB", bytes.div_ceil(1 << 20)),
        (Check::Unspecified, "", _) => "not checked".to_owned(),
        (Check::Unspecified, detail, _) => format!("not checked ({detail})"),
    };
    let parts = [image.action.as_str(), &image.url, &known];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(": ")
}

impl Row for pb::InstancePlan {
    const COLUMNS: &'static str = "HARDWARE:hardware_id,NAME:hardware_name,TEMPLATE:template_name,\
        DISK:disk,ERASES,IMAGES";

    fn cell(&self, column: &str) -> String {
        let texts: Vec<_> = match column {
            "ERASES" => self.erasures.iter().map(erasure_text).collect(),
            _ => self.images.iter().map(image_text).collect(),
        };
        texts.join("; ")
    }
}

/// Returns the instance, without the ids that the server has to look up.
fn from_options(create: &Order) -> anyhow::Result<pb::Instance> {
    let mut ssh_keys = Vec::new();
    for file in &create.ssh_keys {
        ssh_keys.extend(keys(&input::text(file)?).with_context(|| file.display().to_string())?);
    }
    let text = |file: &Option<PathBuf>| -> anyhow::Result<String> {
        Ok(file.as_deref().map(input::text).transpose()?.unwrap_or_default())
    };
    let power_management = match create.no_power_management {
        true => PowerManagement::None,
        false => PowerManagement::Unspecified,
    };
    let user_data = create.userdata.as_deref().map(input::user_data).transpose()?;
    let (userdata, userdata_bytes) = user_data.unwrap_or_default();
    Ok(pb::Instance {
        hostname: create.hostname.clone().unwrap_or_default(),
        ssh_keys,
        userdata,
        userdata_bytes,
        vendor_data: text(&create.vendor_data)?,
        network_config: text(&create.network_config)?,
        template_values: create.values.iter().cloned().collect(),
        labels: create.labels.iter().cloned().collect(),
        root_disk: create.root_disk.clone().map(Box::new),
        power_management: power_management.into(),
        ..pb::Instance::default()
    })
}

/// Returns the keys in a file, one per line, without empty lines and comments, as sshd does. Fails for a private key, which is not sent.
fn keys(text: &str) -> anyhow::Result<Vec<String>> {
    let is_private = |line: &str| {
        line.contains("PRIVATE KEY-")
            || line.contains("PRIVATE KEY -")
            || line.starts_with("PuTTY-User-Key-File-")
    };
    let is_private = text.lines().any(is_private);
    anyhow::ensure!(!is_private, "a private key: give the public key, whose file ends with .pub");
    let lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    Ok(lines.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_keys_is_read_as_sshd_reads_it() {
        let text = "# mine\nssh-ed25519 AAAA me@here\n\n  ssh-rsa BBBB\r\n";
        assert_eq!(keys(text).unwrap(), ["ssh-ed25519 AAAA me@here", "ssh-rsa BBBB"]);
    }

    #[test]
    fn a_machine_that_is_not_found_is_reported_with_what_a_tenant_gives() {
        let missing = tinwright::status::not_found("hardware", "n1");
        let text = with_tenant_hint(missing.into()).to_string();
        let hint = "; a caller with a tenant gives --model or --location instead";
        assert!(text.starts_with("hardware n1 not found") && text.ends_with(hint), "{text}");
    }

    #[test]
    fn a_private_key_is_refused_without_a_part_of_it() {
        for begin in [
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "-----BEGIN PRIVATE KEY-----",
            "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----",
            "PuTTY-User-Key-File-3: ssh-ed25519",
        ] {
            let text = format!("{begin}\nb3BlbnNzaC1r\n");
            let error = keys(&text).unwrap_err().to_string();
            assert_eq!(error, "a private key: give the public key, whose file ends with .pub");
        }
    }
}
