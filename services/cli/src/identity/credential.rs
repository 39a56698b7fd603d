//! Commands on credentials. The values of their fields come from a file or from standard input, never from the command line, where
//! other users of the computer could read them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use runtime::{Channel, Clock};
use serde::Deserialize as _;
use tinwright::hardware::v1::Location;
use tinwright::identity::v1 as pb;
use tinwright::status;
use tonic::Status;

use super::beginning_with;
use crate::connect::{Io, View};
use crate::output::{self, Format, List, ListOutput, Row, Table};
use crate::resource::{Resource as _, list_all, required};
use crate::{failure, input};

/// Commands on credentials.
#[derive(Debug, clap::Subcommand)]
pub enum CredentialCommand {
    /// Create a credential; its API key is printed once
    Create(CreateOptions),
    /// List credentials
    List {
        /// List only credentials of this tenant
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        tenant: String,
        /// The output
        #[command(flatten)]
        output: ListOutput,
    },
    /// Delete credentials: within seconds their holders are refused
    Delete {
        /// The credentials, by their ids or the beginnings of these
        #[arg(value_name = "ID", required = true)]
        ids: Vec<String>,
    },
}

/// Options of a new credential.
#[derive(Debug, clap::Args)]
pub struct CreateOptions {
    /// Give this role
    #[arg(long)]
    role: PersonalRole,
    /// Limit it to the objects of this tenant
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    tenant: String,
    /// Describe it for people
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    description: String,
    /// Let its holder act for this hub only; may be repeated
    #[arg(long = "hub", value_name = "ID")]
    hubs: Vec<String>,
    /// Let its holder use the location with this name or id only; may be repeated. It need not exist yet
    #[arg(long = "location", value_name = "NAME")]
    locations: Vec<String>,
    /// Have the machines that its holder orders load their system from here, whatever their location says: an http or https URL, or
    /// a path that begins with /platform/
    #[arg(long, value_name = "URL", default_value = "", hide_default_value = true)]
    boot_url: String,
    /// Let it expire after this time, such as 30d [default: never]
    #[arg(long, value_name = "DURATION", value_parser = input::duration)]
    lifetime: Option<Duration>,
    /// Read its fields from this file: a YAML or JSON object of names and values; - for standard input [default: a new API key]
    #[arg(long, value_name = "FILE")]
    fields_file: Option<PathBuf>,
    /// Add a label, for selecting; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
}

/// Roles of people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum PersonalRole {
    /// Read everything but secrets
    Viewer = pb::Role::Viewer as isize,
    /// Read and change everything but secrets
    Operator = pb::Role::Operator as isize,
    /// Do everything
    Admin = pb::Role::Admin as isize,
}

/// Runs `command`.
pub(super) async fn run(command: CredentialCommand, io: &mut Io<'_>) -> anyhow::Result<()> {
    match command {
        CredentialCommand::Create(options) => create(options, io).await,
        CredentialCommand::List { tenant, output } => {
            print(&credentials(&tenant, io).await?, &output, io).await
        }
        CredentialCommand::Delete { ids } => delete(&ids, io).await,
    }
}

/// Returns the credentials of `tenant`; of all tenants if it is empty.
async fn credentials(tenant: &str, io: &Io<'_>) -> Result<Vec<pb::Credential>, Status> {
    let select = |request: &mut pb::ListCredentialsRequest| tenant.clone_into(&mut request.tenant);
    list_all(io.channel, select).await
}

/// Deletes credentials. `names` are their ids, the beginnings of these, or references. All are found before the first is deleted.
async fn delete(names: &[String], io: &mut Io<'_>) -> anyhow::Result<()> {
    let stored = credentials("", io).await?;
    let mut ids = Vec::new();
    for name in names {
        let name = output::referenced::<pb::Credential>(name).to_ascii_lowercase();
        anyhow::ensure!(!name.is_empty(), "an empty text is not the id of a credential");
        let found = beginning_with("ids", stored.iter().map(|it| it.id.as_str()), &name)?;
        let id = found.ok_or_else(|| status::not_found("credential", &name))?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    for id in ids {
        io.call(pb::DeleteCredentialRequest { id: id.to_owned(), revision: 0 }).await?;
        io.print(&format!("credential {id} deleted"))?;
    }
    Ok(())
}

async fn create(options: CreateOptions, io: &mut Io<'_>) -> anyhow::Result<()> {
    warn_of_missing(&options.locations, io.channel).await;
    let fields = options.fields_file.as_deref().map(fields).transpose()?.unwrap_or_default();
    let end = options.lifetime.map(|lifetime| Clock::system().wall() + lifetime);
    let credential = pb::Credential {
        role: options.role as i32,
        tenant: options.tenant,
        description: options.description,
        hubs: options.hubs,
        locations: options.locations,
        boot_url: options.boot_url,
        labels: options.labels.into_iter().collect(),
        expire_time: end.map(Into::into),
        ..pb::Credential::default()
    };
    let (credential, request_id) = (Some(credential), String::new());
    let request = pb::CreateCredentialRequest { credential, fields, request_id };
    let created = io.call(request).await?;
    print(&[required(created.credential)?], &Format::Table.into(), io).await?;
    match created.api_key.as_str() {
        "" => Ok(()),
        key => io.print(&format!("API key, shown only once: {key}")),
    }
}

/// Warns of locations that do not exist. The server accepts them: it does not know the locations.
async fn warn_of_missing(locations: &[String], channel: &Channel) {
    for name in locations {
        let found = Location::get(channel, name, View::Basic).await;
        if found.is_err_and(|error| failure::is_not_found(&error)) {
            eprintln!(
                "tinwright: warning: there is no location {name}: compare it with `tinwright location list`"
            );
        }
    }
}

/// Prints credentials.
async fn print(
    credentials: &[pb::Credential],
    output: &ListOutput,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let empty = "no credential: create one with `tinwright identity credential create --role ROLE`";
    let list = List::new(credentials, |credential| &credential.id, empty);
    let is_wide = output.output == Format::Wide;
    let table = async |now| {
        let table = Table::of(credentials, now);
        let cells = |it: &pb::Credential| vec![it.hubs.join(","), it.locations.join(",")];
        match is_wide {
            true => table.with_columns(&["HUBS", "LOCATIONS"], credentials.iter().map(cells)),
            false => table,
        }
    };
    list.print(output, table, io.out).await
}

/// Reads the values of fields. Errors do not quote them.
fn fields(path: &Path) -> anyhow::Result<BTreeMap<String, String>> {
    let text = input::text(path)?;
    let read = BTreeMap::deserialize(yaml_serde::Deserializer::from_str(&text));
    let fields: Option<BTreeMap<String, String>> = read.ok();
    let refused = || format!("{} is not an object of names and texts", path.display());
    let fields = fields.with_context(refused)?;
    anyhow::ensure!(!fields.is_empty(), "{} has no field", path.display());
    Ok(fields)
}

impl Row for pb::Credential {
    const COLUMNS: &'static str = "ID:id,ROLE:role,TENANT:tenant,FIELDS:field_names,\
        AGE:create_time,EXPIRES IN:expire_time,DESCRIPTION:description";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_from_yaml_or_json_and_not_quoted_in_errors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fields");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            fields(&path)
        };
        let right = BTreeMap::from([("client_id".to_owned(), "a".to_owned())]);
        assert_eq!(read("client_id: a\n").unwrap(), right);
        assert_eq!(read(r#"{"client_id": "a"}"#).unwrap(), right);
        for wrong in ["", "{}", "hunter2", "secret: [hunter2]"] {
            let error = format!("{:#}", read(wrong).unwrap_err());
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
