//! Changes of a BMC's record.

use std::path::PathBuf;

use tinwright::power::v1 as pb;
use tinwright::power::v1::bmc::{Protocol, Redfish};

use super::with_hint;
use crate::connect::{Io, View};
use crate::output::Format;
use crate::resource::{self, FromFiles as _, Resource as _, SendOptions};
use crate::{bmc_address, input, password};

/// Changes of a BMC. A new address requires the password again.
#[derive(Debug, clap::Args)]
pub struct UpdateBmc {
    /// The BMC
    #[arg(value_name = "ID|MACHINE")]
    bmc: String,
    /// Set the root of its Redfish service; asks for the password
    #[arg(long, value_name = "URL", conflicts_with = "ipmi")]
    url: Option<String>,
    /// Control it over IPMI at this address; asks for the password
    #[arg(long, value_name = "HOST[:PORT]")]
    ipmi: Option<String>,
    /// Use this cipher suite of IPMI: 3, 8, 12 or 17 [default: unchanged]
    #[arg(long, value_name = "NUMBER")]
    cipher_suite: Option<u32>,
    /// Select the system with this id or name
    #[arg(long, value_name = "NAME")]
    system: Option<String>,
    /// Log in as this user
    #[arg(long, value_name = "NAME")]
    username: Option<String>,
    /// Read the password for a new address from this file; - for standard input
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Trust the certificate with this SHA-256 in hex
    #[arg(long, value_name = "HEX", conflicts_with = "accept_certificate")]
    certificate_sha256: Option<String>,
    /// Trust the certificate that the BMC has now
    #[arg(long)]
    accept_certificate: bool,
    /// Allow TLS before 1.2 and ciphers without forward secrecy, by the program openssl on the server
    #[arg(long, conflicts_with = "no_legacy_tls")]
    legacy_tls: bool,
    /// Allow only TLS 1.2 and later with forward secrecy
    #[arg(long)]
    no_legacy_tls: bool,
    /// Change it without a login to the BMC
    #[arg(long)]
    skip_login: bool,
    /// Accept the machine that the BMC lists, also if another record has its UUID or a MAC of it, or the UUID is not the machine's
    #[arg(long, conflicts_with = "skip_login")]
    accept_other_machine: bool,
    /// Add or replace a label; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    labels: Vec<(String, String)>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// A new password.
#[derive(Debug, clap::Args)]
pub struct SetPassword {
    /// The BMC
    #[arg(value_name = "ID|MACHINE")]
    bmc: String,
    /// Read the password from this file; - for standard input [default: a prompt at a terminal, else standard input]
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Change it without a login to the BMC
    #[arg(long)]
    skip_login: bool,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

impl UpdateBmc {
    /// True if a setting is given.
    fn has_setting(&self) -> bool {
        let texts = [&self.url, &self.ipmi, &self.system, &self.username, &self.certificate_sha256];
        texts.iter().any(|text| text.is_some())
            || self.cipher_suite.is_some()
            || self.accept_certificate
            || self.legacy_tls
            || self.no_legacy_tls
            || self.accept_other_machine
            || !self.labels.is_empty()
    }
}

/// Changes the fields that `options` names.
pub(super) async fn update(options: UpdateBmc, io: &mut Io<'_>) -> anyhow::Result<()> {
    anyhow::ensure!(options.has_setting(), "nothing to change: give a setting");
    let mut bmc = pb::Bmc::find(io.channel, &options.bmc, View::Basic).await?;
    if options.url.is_some() || options.ipmi.is_some() {
        bmc.password = password::read("of the BMC", options.password_file.as_deref())?;
    }
    let (name, output) = (options.bmc.clone(), options.output.clone());
    let (skip_login, accept_other_machine) = (options.skip_login, options.accept_other_machine);
    let send = SendOptions { skip_login, accept_other_machine, force: false };
    apply(&mut bmc, options)?;
    store(bmc, &name, send, output, io).await
}

/// Changes the stored password.
pub(super) async fn set_password(options: SetPassword, io: &mut Io<'_>) -> anyhow::Result<()> {
    let mut bmc = pb::Bmc::find(io.channel, &options.bmc, View::Basic).await?;
    bmc.password = password::read("of the BMC", options.password_file.as_deref())?;
    let send = SendOptions { skip_login: options.skip_login, ..SendOptions::default() };
    store(bmc, &options.bmc, send, options.output, io).await
}

async fn store(
    bmc: pb::Bmc,
    name: &str,
    options: SendOptions,
    output: Format,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    // An empty mask leaves an empty password unchanged.
    let updated = io.call(bmc.update_request(None, options)).await;
    let updated = updated.map_err(|status| with_hint(status, name))?;
    resource::print(updated.bmc.as_slice(), output, io).await
}

/// Puts the changes into `bmc`.
fn apply(bmc: &mut pb::Bmc, options: UpdateBmc) -> anyhow::Result<()> {
    if let Some(username) = options.username {
        bmc.username = username;
    }
    bmc.labels.extend(options.labels);
    if let Some(address) = &options.ipmi {
        bmc.protocol = Some(Protocol::Ipmi(bmc_address::ipmi(address, None)?));
    }
    if let Some(url) = options.url {
        match &mut bmc.protocol {
            Some(Protocol::Redfish(redfish)) => redfish.url = url,
            other => {
                *other = Some(Protocol::Redfish(Redfish { url, ..Redfish::default() }));
            }
        }
    }
    match &mut bmc.protocol {
        Some(Protocol::Redfish(redfish)) => {
            anyhow::ensure!(options.cipher_suite.is_none(), "--cipher-suite is for IPMI only");
            if let Some(system) = options.system {
                redfish.system_id = system;
            }
            if let Some(digest) = options.certificate_sha256 {
                redfish.certificate_sha256 = digest;
            }
            if options.accept_certificate {
                redfish.certificate_sha256.clear();
            }
            redfish.legacy_tls =
                (redfish.legacy_tls || options.legacy_tls) && !options.no_legacy_tls;
        }
        Some(Protocol::Ipmi(ipmi)) => {
            let of_redfish = options.system.is_some()
                || options.certificate_sha256.is_some()
                || options.accept_certificate
                || options.legacy_tls
                || options.no_legacy_tls;
            anyhow::ensure!(!of_redfish, "systems, certificates and TLS are for Redfish only");
            if let Some(suite) = options.cipher_suite {
                ipmi.cipher_suite = suite;
            }
        }
        None => {}
    }
    Ok(())
}
