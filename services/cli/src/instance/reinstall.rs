//! `instance reinstall`.

use std::path::PathBuf;

use prost_types::FieldMask;
use runtime::Channel;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1 as pb;
use tinwright::instance::v1::instance::{CustomIpxe, Os};
use tinwright::workflow::v1::Template;

use super::{Goal, wait};
use crate::connect::{Io, View};
use crate::output::Format;
use crate::resource::{self, Resource as _};
use crate::{confirm, input};

/// Values that replace the instance's own ones.
#[derive(Debug, clap::Args)]
pub struct ReinstallInstance {
    /// The instance
    #[arg(value_name = pb::Instance::NAMES)]
    name: String,
    /// Install with this template, and without the instance's image unless --image is given [default: the instance's own]
    #[arg(long, value_name = "NAME|ID")]
    template: Option<String>,
    /// Install this image, in place of the same content as before
    #[arg(long, value_name = "NAME|ID")]
    image: Option<String>,
    /// Boot the custom iPXE script in this file, in place of a template and an image
    #[arg(long, value_name = "FILE", conflicts_with_all = ["template", "values", "image"])]
    script: Option<PathBuf>,
    /// Set the value of a placeholder of the template, in place of all earlier ones; may be repeated
    #[arg(long = "value", value_name = "KEY=VALUE", value_parser = input::pair)]
    values: Vec<(String, String)>,
    /// Read other user data from this file
    #[arg(long, value_name = "FILE")]
    userdata: Option<PathBuf>,
    /// Wait until the instance is active again; exit with 1 if it fails
    #[arg(long)]
    wait: bool,
    /// Reinstall without a question; needed without a terminal
    #[arg(short, long)]
    yes: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Orders that the instance be installed again.
pub(super) async fn run(reinstall: ReinstallInstance, io: &mut Io<'_>) -> anyhow::Result<()> {
    let found = pb::Instance::find(io.channel, &reinstall.name, View::Basic).await?;
    let (instance, paths) = replaced(&reinstall, io.channel).await?;
    let request = pb::ReinstallInstanceRequest {
        id: found.id.clone(),
        // A repeated call finds the revision changed, and installs no second time.
        revision: found.revision,
        instance: Some(instance),
        update_mask: Some(FieldMask { paths }),
        validate_only: false,
    };
    if !reinstall.yes {
        confirm::require(&question(&found, request.clone(), io).await?, false)?;
    }
    let ordered = io.call(request).await?;
    resource::print(ordered.instance.as_slice(), reinstall.output, io).await?;
    match reinstall.wait {
        true => wait::until(io.channel, &found.id, &reinstall.name, Goal::Active).await,
        false => Ok(()),
    }
}

/// Returns the question before the reinstallation of `found`. Fails as that would.
async fn question(
    found: &pb::Instance,
    request: pb::ReinstallInstanceRequest,
    io: &mut Io<'_>,
) -> anyhow::Result<String> {
    let request = pb::ReinstallInstanceRequest { validate_only: true, ..request };
    let plan = io.call(request).await?.plan.unwrap_or_default();
    let machine = match plan.hardware_name.as_str() {
        // To a caller with a tenant the plan names none.
        "" => Hardware::find(io.channel, &found.hardware_id, View::Basic).await?.title(),
        name => name.to_owned(),
    };
    let in_use = confirm::in_use(&machine, found, runtime::Clock::system().wall());
    Ok(match plan.erasures.as_slice() {
        [] => format!("Install {in_use} again?"),
        erasures => format!("Erase {} of {in_use}?", confirm::erased(erasures)),
    })
}

/// Returns the new values, and the names of their fields.
async fn replaced(
    reinstall: &ReinstallInstance,
    channel: &Channel,
) -> anyhow::Result<(pb::Instance, Vec<String>)> {
    let (mut instance, mut paths) = (pb::Instance::default(), Vec::new());
    if let Some(name) = &reinstall.template {
        instance.template_id = Template::find_id(channel, name).await?;
        // Without another image the former one is removed: it may be gone.
        paths.extend(["template_id", "image_id"]);
    }
    if let Some(image) = &reinstall.image {
        instance.image_id.clone_from(image);
        if reinstall.template.is_none() {
            paths.push("image_id");
        }
    }
    if let Some(file) = &reinstall.script {
        let script = CustomIpxe { contents: input::text(file)?, ..CustomIpxe::default() };
        instance.os = Some(Os::CustomIpxe(script));
        paths.extend(["custom_ipxe", "template_id", "image_id"]);
    }
    if !reinstall.values.is_empty() {
        instance.template_values = reinstall.values.iter().cloned().collect();
        paths.push("template_values");
    }
    if let Some(file) = &reinstall.userdata {
        (instance.userdata, instance.userdata_bytes) = input::user_data(file)?;
        // What is stored in the other form is removed.
        paths.extend(["userdata", "userdata_bytes"]);
    }
    Ok((instance, paths.into_iter().map(str::to_owned).collect()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(flatten)]
        reinstall: ReinstallInstance,
    }

    async fn replaced_by(options: &str) -> (pb::Instance, Vec<String>) {
        let words = ["reinstall", "web"].into_iter().chain(options.split_whitespace());
        let Program { reinstall } = Program::try_parse_from(words).unwrap();
        // Not called, as there is no name of a template to look up.
        let channel = Channel::unconnected();
        replaced(&reinstall, &channel).await.unwrap()
    }

    #[tokio::test]
    async fn only_what_is_given_is_replaced() {
        assert_eq!(replaced_by("").await, (pb::Instance::default(), Vec::new()));
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(&file, "#!ipxe\nshell\n").unwrap();
        let (instance, paths) = replaced_by(&format!("--script {}", file.path().display())).await;
        let expected = ["custom_ipxe", "template_id", "image_id"];
        assert_eq!(paths, expected, "its template would win otherwise");
        let Some(Os::CustomIpxe(script)) = instance.os else { panic!("{instance:?}") };
        assert_eq!(script.contents, "#!ipxe\nshell\n");
        let id = "11111111-1111-4111-8111-111111111111";
        let (instance, paths) = replaced_by(&format!("--template {id}")).await;
        assert_eq!((instance.template_id.as_str(), instance.image_id.as_str()), (id, ""));
        assert_eq!(paths, ["template_id", "image_id"], "the former image may be gone");
        let (instance, paths) = replaced_by(&format!("--template {id} --image debian")).await;
        assert_eq!((instance.template_id.as_str(), instance.image_id.as_str()), (id, "debian"));
        assert_eq!(paths, ["template_id", "image_id"]);
        let (instance, paths) = replaced_by("--image debian").await;
        assert_eq!((instance.image_id.as_str(), paths), ("debian", vec!["image_id".to_owned()]));
        let (instance, paths) = replaced_by("--value disk=/dev/sdb --value a=b").await;
        assert_eq!((paths, instance.template_values.len()), (vec!["template_values".into()], 2));
        std::fs::write(&file, [0x1f, 0x8b, 8]).unwrap();
        let (instance, paths) = replaced_by(&format!("--userdata {}", file.path().display())).await;
        assert_eq!(paths, ["userdata", "userdata_bytes"]);
        assert_eq!((instance.userdata.as_str(), instance.userdata_bytes.len()), ("", 3));
    }
}
