//! Commands on BMCs. A password comes from a file or from standard input, never from the command line, where other users
//! of the computer could read it.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tinwright::BmcId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::get_bmc_request::By;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::client;
use crate::connect::View;
use crate::follow::{Watch, Watchable};
use crate::output::{self, Format, Row, print_list};
use crate::resource::{
    self, NoOptions, PAGE_SIZE, Page, Query, Resource, ResourceCommand, required,
};
use crate::{hardware, input};

/// Commands on BMCs.
#[derive(Debug, clap::Subcommand)]
pub enum BmcCommand {
    /// Create the BMC of a machine; its password is read from standard input or from a file
    Create(CreateBmc),
    /// Commands that every resource has
    #[command(flatten)]
    Resource(ResourceCommand<pb::Bmc>),
}

/// Options of a new BMC.
#[derive(Debug, clap::Args)]
pub struct CreateBmc {
    /// Control this machine
    #[arg(long, value_name = "ID|NAME|MAC|ADDRESS")]
    hardware: String,
    /// Set the root of its Redfish service, such as https://198.51.100.2
    #[arg(long, value_name = "URL")]
    url: String,
    /// Select the system with this id or name, if the service has several
    #[arg(long, value_name = "NAME", default_value = "")]
    system: String,
    /// Log in as this user
    #[arg(long, value_name = "NAME")]
    username: String,
    /// Read the password from this file; - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    password_file: PathBuf,
    /// Trust the certificate with this SHA-256 in hex [default: certificates signed by a root that the server trusts]
    #[arg(long, value_name = "HEX")]
    certificate_sha256: Option<String>,
    /// Add a label, for selecting; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Runs `command`.
pub(super) async fn run(
    command: BmcCommand,
    channel: &Channel,
    out: &mut dyn std::io::Write,
) -> anyhow::Result<()> {
    let create = match command {
        BmcCommand::Create(create) => create,
        BmcCommand::Resource(command) => return resource::run(command, channel, out).await,
    };
    let password = password(&create.password_file)?;
    let bmc = pb::Bmc {
        hardware_id: hardware::id(channel, &create.hardware).await?,
        redfish_url: create.url,
        system_id: create.system,
        username: create.username,
        password,
        certificate_sha256: create.certificate_sha256.unwrap_or_default(),
        labels: create.labels.into_iter().collect(),
        ..pb::Bmc::default()
    };
    let request = pb::CreateBmcRequest { bmc: Some(bmc), request_id: String::new() };
    let created = client(channel).create_bmc(request).await?.into_inner();
    print_list(out, created.bmc.as_slice(), create.output)
}

fn password(file: &Path) -> anyhow::Result<String> {
    let typed = file == Path::new("-") && std::io::stdin().is_terminal();
    anyhow::ensure!(!typed, "a terminal would show the password: give --password-file, or a pipe");
    let password = without_line_end(input::text(file)?);
    anyhow::ensure!(!password.is_empty(), "{} holds no password", file.display());
    Ok(password)
}

/// Returns `text` without the final line break of editors and `echo`; other spaces may be part of the password.
fn without_line_end(text: String) -> String {
    let line = text.strip_suffix('\n').unwrap_or(&text);
    line.strip_suffix('\r').unwrap_or(line).to_owned()
}

impl Row for pb::Bmc {
    const COLUMNS: &'static [&'static str] = &["ID", "HARDWARE", "URL", "USERNAME", "AGE"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        vec![
            self.id.clone(),
            self.hardware_id.clone(),
            self.redfish_url.clone(),
            self.username.clone(),
            output::age(self.create_time, now),
        ]
    }
}

impl Watchable for pb::Bmc {
    type Response = pb::WatchBmcsResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(channel: &Channel, id: String, _: View) -> Watch<Self> {
        Ok(client(channel).watch_bmcs(pb::WatchBmcsRequest { id }).await?.into_inner())
    }
}

impl Resource for pb::Bmc {
    type Filter = NoOptions;
    type WatchOptions = NoOptions;
    type DeleteOptions = NoOptions;
    const RESOURCE: &'static str = "BMC";
    const NAMES: &'static str = "ID|MACHINE";

    /// Finds a BMC by its id, else by its machine.
    async fn find(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        if name.parse::<BmcId>().is_err() {
            let machine = hardware::id(channel, name).await?;
            return required(get(channel, By::HardwareId(machine)).await?);
        }
        required(match get(channel, By::Id(name.into())).await {
            Err(status) if status.code() == Code::NotFound => {
                get(channel, By::HardwareId(name.into())).await.map_err(|_| status)?
            }
            other => other?,
        })
    }

    async fn page(channel: &Channel, query: &Query<Self>, page_token: String) -> Page<Self> {
        let labels = query.labels.iter().cloned().collect();
        let request = pb::ListBmcsRequest { page_size: PAGE_SIZE, page_token, labels };
        let page = client(channel).list_bmcs(request).await?.into_inner();
        Ok((page.bmcs, page.next_page_token))
    }

    async fn delete(&self, channel: &Channel, _: &NoOptions) -> anyhow::Result<()> {
        let request = pb::DeleteBmcRequest { id: self.id.clone(), revision: 0 };
        client(channel).delete_bmc(request).await?;
        Ok(())
    }
}

async fn get(channel: &Channel, by: By) -> Result<Option<pb::Bmc>, Status> {
    Ok(client(channel).get_bmc(pb::GetBmcRequest { by: Some(by) }).await?.into_inner().bmc)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_end_of_line_is_not_part_of_a_password() {
        for text in ["s3cret ", "s3cret \n", "s3cret \r\n"] {
            assert_eq!(without_line_end(text.into()), "s3cret ");
        }
        assert_eq!(without_line_end("a\n\n".into()), "a\n");
    }
}
