//! Commands on BMCs. A password comes from a file or from standard input, never from the command line, where other users
//! of the computer could read it.

use std::io::{IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use tinwright::BmcId;
use tinwright::power::v1 as pb;
use tinwright::power::v1::get_bmc_request::By;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::client;
use crate::connect::{Show, View};
use crate::follow::Watchable;
use crate::noun::{self, Noun, PAGE, Plain, Wanted, answered};
use crate::output::{self, Row, say};
use crate::{hardware, input};

/// Commands on BMCs.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Create the BMC of a machine; its password is read from standard input or from a file
    Create(Create),
    /// Commands that every resource has
    #[command(flatten)]
    Noun(noun::Command<pb::Bmc>),
}

/// A new BMC.
#[derive(Debug, clap::Args)]
pub struct Create {
    /// The machine that it controls
    #[arg(long, value_name = "ID|NAME|MAC|ADDRESS")]
    hardware: String,
    /// Root of its Redfish service, such as https://198.51.100.2
    #[arg(long, value_name = "URL")]
    url: String,
    /// Id or name of the system, if the service has several
    #[arg(long, value_name = "NAME", default_value = "")]
    system: String,
    /// User name
    #[arg(long, value_name = "NAME")]
    username: String,
    /// File with the password; - for standard input
    #[arg(long, value_name = "FILE", default_value = "-")]
    password_file: PathBuf,
    /// SHA-256 of its certificate in hex [default: a certificate signed by a root that the server trusts]
    #[arg(long, value_name = "HEX")]
    certificate_sha256: Option<String>,
    /// Label, for selecting; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Server and output format
    #[command(flatten)]
    show: Show,
}

/// Runs `command`.
pub(super) async fn run(command: Command, out: &mut dyn Write) -> anyhow::Result<()> {
    match command {
        Command::Create(create) => self::create(create, out).await,
        Command::Noun(command) => noun::run(command, out).await,
    }
}

async fn create(create: Create, out: &mut dyn Write) -> anyhow::Result<()> {
    let password = password(&create.password_file)?;
    let channel = create.show.connection.open().await?;
    let bmc = pb::Bmc {
        hardware_id: hardware::id(&channel, &create.hardware).await?,
        redfish_url: create.url,
        system_id: create.system,
        username: create.username,
        password,
        certificate_sha256: create.certificate_sha256.unwrap_or_default(),
        labels: create.labels.into_iter().collect(),
        ..pb::Bmc::default()
    };
    let request = pb::CreateBmcRequest { bmc: Some(bmc), request_id: String::new() };
    let made = client(&channel).create_bmc(request).await?.into_inner().bmc;
    say(out, &output::list(made.as_slice(), create.show.output)?)
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
    type Told = pb::WatchBmcsResponse;

    fn id(&self) -> &str {
        &self.id
    }

    async fn watch(
        channel: &Channel,
        id: String,
        _: View,
    ) -> Result<Streaming<Self::Told>, Status> {
        Ok(client(channel).watch_bmcs(pb::WatchBmcsRequest { id }).await?.into_inner())
    }
}

impl Noun for pb::Bmc {
    type Choice = Plain;
    type Sight = Plain;
    type Removal = Plain;
    const NOUN: &'static str = "BMC";
    const NAMES: &'static str = "ID|MACHINE";

    /// Finds a BMC by its id, else by its machine.
    async fn find(channel: &Channel, name: &str, _: View) -> anyhow::Result<Self> {
        if name.parse::<BmcId>().is_err() {
            let machine = hardware::id(channel, name).await?;
            return answered(get(channel, By::HardwareId(machine)).await?);
        }
        answered(match get(channel, By::Id(name.into())).await {
            Err(status) if status.code() == Code::NotFound => {
                get(channel, By::HardwareId(name.into())).await.map_err(|_| status)?
            }
            other => other?,
        })
    }

    async fn list(channel: &Channel, wanted: Wanted<Plain>) -> anyhow::Result<Vec<Self>> {
        noun::pages(async |page_token| {
            let labels = wanted.labels.clone();
            let request = pb::ListBmcsRequest { page_size: PAGE, page_token, labels };
            let page = client(channel).list_bmcs(request).await?.into_inner();
            Ok((page.bmcs, page.next_page_token))
        })
        .await
    }

    async fn delete(&self, channel: &Channel, _: &Plain) -> anyhow::Result<()> {
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
