//! Commands on identities: client certificates and credentials.
//!
//! The key of a certificate is generated here, and never leaves this computer. The key of an edge comes from the server.

mod credential;
mod rotate;

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use runtime::authority;
use tinwright::identity::v1 as pb;
use tinwright::identity::v1::identity_service_client::IdentityServiceClient;
use tonic::transport::Channel;

use crate::input;
use crate::output::{self, Format, Row, print_line, print_list};
use crate::resource::{self, PAGE_SIZE, required};

/// Commands on identities.
#[derive(Debug, clap::Subcommand)]
pub enum IdentityCommand {
    /// Issue a client certificate
    Issue(IssueOptions),
    /// List the issued certificates that have not expired
    List {
        /// List only certificates of this tenant
        #[arg(long, value_name = "NAME", default_value = "")]
        tenant: String,
        /// Print in this format
        #[arg(short, long, default_value = "table")]
        output: Format,
    },
    /// Revoke certificates: within seconds they are refused, and their connections are closed
    Revoke {
        /// Their serial numbers in hexadecimal digits, also as openssl prints them
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

/// Options of a new certificate.
#[derive(Debug, clap::Args)]
pub struct IssueOptions {
    /// Give this role
    #[arg(long)]
    role: Role,
    /// Name its holder, such as person:anna [default: the name of the role]
    #[arg(long, value_name = "SUBJECT", default_value = "")]
    subject: String,
    /// Limit it to the objects of this tenant
    #[arg(long, value_name = "NAME", default_value = "")]
    tenant: String,
    /// Let it be valid for this time, such as 30d or 12h, at most 398d [default: 398d]
    #[arg(long, value_name = "DURATION", value_parser = input::duration)]
    lifetime: Option<Duration>,
    /// Certify the key of this certificate request (PKCS#10, PEM or DER) [default: a new key]
    #[arg(long, value_name = "FILE")]
    csr: Option<PathBuf>,
    /// Let the edge or the door be called at these host names and addresses, at most 16; other processes believe that it is the server with
    /// these names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    server_name: Vec<String>,
    /// Write PREFIX.pem, PREFIX-key.pem and PREFIX-ca.pem; for an edge its directory of secrets, which is secrets in its data
    /// directory, with ca.pem, edge.pem, edge-key.pem and edge.key; for a door the same with ca.pem, door.pem and door-key.pem
    #[arg(long, value_name = "PREFIX")]
    out: PathBuf,
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

/// Runs `command`.
pub async fn run(
    command: IdentityCommand,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    match command {
        IdentityCommand::Issue(options) => issue(options, channel, out).await,
        IdentityCommand::List { tenant, output } => {
            let page = async |page_token| {
                let tenant = tenant.clone();
                let request =
                    pb::ListCertificatesRequest { page_size: PAGE_SIZE, page_token, tenant };
                let page = client(channel).list_certificates(request).await?.into_inner();
                Ok((page.certificates, page.next_page_token))
            };
            print_list(out, &resource::pages(page).await?, &output)
        }
        IdentityCommand::Revoke { serials } => {
            for serial in serials {
                let request = pb::RevokeCertificateRequest { serial: serial.clone() };
                let revoked = client(channel).revoke_certificate(request).await?.into_inner();
                let holder = revoked.certificate.map(|it| format!(" of {}", it.subject));
                let holder = holder.unwrap_or_default();
                print_line(out, &format!("certificate {serial}{holder} revoked"))?;
            }
            Ok(())
        }
        IdentityCommand::Rotate(command) => rotate::run(command, channel, out).await,
        IdentityCommand::Credential(command) => credential::run(command, channel, out).await,
    }
}

async fn issue(
    options: IssueOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let IssueOptions { role, subject, tenant, lifetime, csr, server_name, out: place } = options;
    // The files come first: a certificate that cannot be stored is not issued.
    let mut files = NewFiles::default();
    let names = files.names(role, &place)?;
    let mut certificate_file = files.create(&names.certificate)?;
    let mut authority_file = files.create(&names.authority)?;
    let mut edge_file = names.edge.map(|path| files.create(&path)).transpose()?;
    let certificate_request = match csr {
        Some(path) => {
            std::fs::read(&path).with_context(|| format!("reading {}", path.display()))?
        }
        None => {
            let (request, key) = authority::request_certificate()?;
            write(&mut files.create(&names.key)?, key.expose())?;
            request
        }
    };
    let request = pb::IssueCertificateRequest {
        role: role as i32,
        subject,
        tenant,
        lifetime: lifetime.map(prost_types::Duration::try_from).transpose()?,
        certificate_request,
        server_names: server_name,
    };
    let issued = client(channel).issue_certificate(request).await?.into_inner();
    write(&mut certificate_file, &issued.certificate_pem)?;
    write(&mut authority_file, &issued.authority_pem)?;
    if let Some(file) = &mut edge_file {
        anyhow::ensure!(!issued.edge_key.is_empty(), "the server is too old: it has no edges");
        write(file, &issued.edge_key)?;
    }
    files.keep();
    print_list(out, &[required(issued.certificate)?], &Format::Table)
}

/// The files of a certificate.
#[derive(Debug)]
struct FileNames {
    certificate: PathBuf,
    key: PathBuf,
    authority: PathBuf,
    /// The key of an edge.
    edge: Option<PathBuf>,
}

/// Files that are removed again unless they are complete, with the directory that was created for them.
#[derive(Debug, Default)]
struct NewFiles {
    files: Vec<PathBuf>,
    directory: Option<PathBuf>,
}

impl NewFiles {
    /// Returns the names of the files for a certificate of `role`. For an edge and a door the directory `place` is created, if it is
    /// missing.
    fn names(&mut self, role: Role, place: &Path) -> anyhow::Result<FileNames> {
        if !matches!(role, Role::Edge | Role::Door) {
            let with = |end: &str| {
                let mut path = place.to_owned().into_os_string();
                path.push(end);
                PathBuf::from(path)
            };
            let (certificate, key) = (with(".pem"), with("-key.pem"));
            return Ok(FileNames { certificate, key, authority: with("-ca.pem"), edge: None });
        }
        if !place.exists() {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(place);
            created.with_context(|| format!("creating {}", place.display()))?;
            self.directory = Some(place.to_owned());
        }
        let name = if role == Role::Edge { "edge" } else { "door" };
        Ok(FileNames {
            certificate: place.join(format!("{name}.pem")),
            key: place.join(format!("{name}-key.pem")),
            authority: place.join("ca.pem"),
            edge: (role == Role::Edge).then(|| place.join("edge.key")),
        })
    }

    /// Creates the file `path`, which only its owner may read. A file that is there is not replaced.
    fn create(&mut self, path: &Path) -> anyhow::Result<File> {
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let created = created.with_context(|| format!("creating {}", path.display()))?;
        self.files.push(path.to_owned());
        Ok(created)
    }

    /// Keeps the files.
    fn keep(mut self) {
        self.files.clear();
        self.directory = None;
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        for path in &self.files {
            // Without a certificate they are of no use; one that cannot be removed harms nobody.
            drop(std::fs::remove_file(path));
        }
        if let Some(directory) = &self.directory {
            drop(std::fs::remove_dir(directory));
        }
    }
}

fn write(file: &mut File, text: &str) -> anyhow::Result<()> {
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .context("writing the certificate")
}

impl Row for pb::Certificate {
    const COLUMNS: &'static [&'static str] =
        &["SERIAL", "ROLE", "SUBJECT", "TENANT", "AGE", "EXPIRES IN", "STATE"];

    fn row(&self, now: SystemTime) -> Vec<String> {
        let state = if self.revoke_time.is_some() { "revoked" } else { "valid" };
        vec![
            self.serial.clone(),
            role_word(self.role()),
            self.subject.clone(),
            self.tenant.clone(),
            output::age(self.create_time, now),
            output::time_until(self.expire_time, now),
            state.into(),
        ]
    }
}

/// Returns the name of a role, such as `viewer`.
fn role_word(role: pb::Role) -> String {
    output::word(role.as_str_name(), "ROLE_")
}

fn client(channel: &Channel) -> IdentityServiceClient<Channel> {
    IdentityServiceClient::new(channel.clone())
}
