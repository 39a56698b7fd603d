//! Commands on identities: client certificates and credentials.
//!
//! - `issue`: new certificates, alone or with all that a colleague needs in one file ([`crate::bundle`]).
//! - `credential`: credentials of clients of other protocols. `rotate`: replacing the site's keys.

mod credential;
mod issue;
mod rotate;

use anyhow::Context as _;
use runtime::serial::Serial;
use tinwright::identity::v1 as pb;
use tonic::Status;

use crate::connect::Io;
use crate::output::{self, List, ListOutput, Row};
use crate::resource::list_all;

/// Commands on identities.
#[derive(Debug, clap::Subcommand)]
pub enum IdentityCommand {
    /// Issue a client certificate
    Issue(issue::IssueOptions),
    /// List the issued certificates that have not expired
    List {
        /// List only certificates of this tenant
        #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
        tenant: String,
        /// List only certificates in this state
        #[arg(long)]
        state: Option<ListedState>,
        /// The output
        #[command(flatten)]
        output: ListOutput,
    },
    /// Revoke certificates: within seconds they are refused, and their connections are closed
    Revoke {
        /// Their serial numbers in hexadecimal digits, also as openssl prints them, or the beginnings of those in `identity list`
        #[arg(value_name = "SERIAL", required = true)]
        serials: Vec<String>,
    },
    /// Replace the site's keys while servers run
    #[command(subcommand)]
    Rotate(rotate::RotateCommand),
    /// Manage the credentials of clients of other protocols, such as API keys
    #[command(subcommand)]
    Credential(credential::CredentialCommand),
}

/// Roles of identities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Role {
    /// Read everything but secrets
    Viewer = pb::Role::Viewer as isize,
    /// Read and change everything but secrets
    Operator = pb::Role::Operator as isize,
    /// Do everything
    Admin = pb::Role::Admin as isize,
    /// Serve machines in a less trusted place, without the site key
    Edge = pb::Role::Edge as isize,
    /// Translate another protocol
    Door = pb::Role::Door as isize,
    /// Build images
    Builder = pb::Role::Builder as isize,
}

/// Runs `command` on the server at `servers`.
pub async fn run(
    command: IdentityCommand,
    servers: Vec<String>,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    match command {
        IdentityCommand::Issue(options) => issue::run(options, servers, io).await,
        IdentityCommand::List { tenant, state, output } => {
            let is_all = tenant.is_empty() && state.is_none();
            let mut certificates = certificates(&tenant, io).await?;
            certificates.retain(|it| state.is_none_or(|state| state == state_of(it)));
            print(&certificates, is_all, &output, io).await
        }
        IdentityCommand::Revoke { serials } => revoke(&serials, io).await,
        IdentityCommand::Rotate(command) => rotate::run(command, io).await,
        IdentityCommand::Credential(command) => credential::run(command, io).await,
    }
}

/// Returns the recorded certificates of `tenant`; of all tenants if it is empty.
async fn certificates(tenant: &str, io: &Io<'_>) -> Result<Vec<pb::Certificate>, Status> {
    let select = |request: &mut pb::ListCertificatesRequest| tenant.clone_into(&mut request.tenant);
    list_all(io.channel, select).await
}

/// Revokes certificates. The serial numbers of all are found before the first is revoked.
async fn revoke(texts: &[String], io: &mut Io<'_>) -> anyhow::Result<()> {
    let recorded = certificates("", io).await?;
    let serials = texts.iter().map(|text| whole_serial(text, &recorded));
    for serial in serials.collect::<anyhow::Result<Vec<_>>>()? {
        let revoked = io.call(pb::RevokeCertificateRequest { serial: serial.clone() }).await?;
        let text = match revoked.certificate {
            Some(it) => format!("certificate {serial} of {} revoked", it.subject),
            None => format!(
                "certificate {serial} revoked; no certificate with this serial number is recorded: compare it with `tinwright identity list`"
            ),
        };
        io.print(&text)?;
    }
    Ok(())
}

/// Returns the serial number that is `text`, or that begins with it and is of one of the `recorded` certificates. A whole serial number
/// may be missing there: all certificates of the site can be revoked.
fn whole_serial(text: &str, recorded: &[pb::Certificate]) -> anyhow::Result<String> {
    let text = output::referenced::<pb::Certificate>(text);
    let serial = text.parse::<Serial>()?.to_string();
    let is_recorded = recorded.iter().any(|it| it.serial == serial);
    if is_recorded || serial.len() >= Serial::ISSUED_DIGITS {
        return Ok(serial);
    }
    let digits = text.replace(':', "").to_ascii_lowercase();
    let found =
        beginning_with("serial numbers", recorded.iter().map(|it| it.serial.as_str()), &digits)?;
    found.map(str::to_owned).with_context(|| {
        format!(
            "no serial number in `tinwright identity list` begins with {digits}: give all digits of a certificate that is not recorded"
        )
    })
}

/// Returns the one of `names` that begins with `beginning`; none if there is none. An error, which calls them `noun`, if there are several.
fn beginning_with<'a>(
    noun: &str,
    names: impl Iterator<Item = &'a str>,
    beginning: &str,
) -> anyhow::Result<Option<&'a str>> {
    let found: Vec<&str> = names.filter(|name| name.starts_with(beginning)).collect();
    let count = found.len();
    anyhow::ensure!(count <= 1, "{count} {noun} begin with {beginning}: give more of it");
    Ok(found.first().copied())
}

/// Prints certificates, which are all if `is_all`.
async fn print(
    certificates: &[pb::Certificate],
    is_all: bool,
    output: &ListOutput,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let empty = match is_all {
        true => "no certificate: issue one with `tinwright identity issue --role ROLE`",
        false => "no certificate matches",
    };
    let list = List::new(certificates, |certificate| &certificate.serial, empty);
    list.print_rows(output, io.out).await
}

impl Row for pb::Certificate {
    const COLUMNS: &'static str = "SERIAL:serial,ROLE:role,SUBJECT:subject,TENANT:tenant,\
        AGE:create_time,EXPIRES IN:expire_time,STATE";

    fn cell(&self, _: &str) -> String {
        match state_of(self) {
            ListedState::Valid => "valid",
            ListedState::Revoked => "revoked",
            ListedState::Untrusted => "untrusted",
        }
        .to_owned()
    }
}

/// States of certificates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ListedState {
    /// Accepted until it expires
    Valid,
    /// Refused
    Revoked,
    /// Refused, because its authority was replaced and dropped
    Untrusted,
}

fn state_of(certificate: &pb::Certificate) -> ListedState {
    match certificate.revoke_time {
        Some(_) => ListedState::Revoked,
        None if certificate.authority_dropped => ListedState::Untrusted,
        None => ListedState::Valid,
    }
}
