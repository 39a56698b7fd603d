//! `identity issue`: new certificates.
//!
//! The key of a certificate is generated here, and never leaves this computer but in a bundle. The key of an edge comes from the server.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use runtime::authority;
use tinwright::identity::v1 as pb;

use super::{Role, print};
use crate::bundle::{self, Bundle};
use crate::connect::Io;
use crate::input;
use crate::output::Format;
use crate::resource::required;

/// Options of a new certificate.
#[derive(Debug, clap::Args)]
pub struct IssueOptions {
    /// Give this role
    #[arg(long)]
    role: Role,
    /// Name its holder, such as person:anna [default: the name of the role]
    #[arg(long, value_name = "SUBJECT", default_value = "", hide_default_value = true)]
    subject: String,
    /// Limit it to the objects of this tenant
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    tenant: String,
    /// Let it be valid for this time, such as 30d or 12h, at most 398d [default: 398d]
    #[arg(long, value_name = "DURATION", value_parser = input::duration)]
    lifetime: Option<Duration>,
    /// Certify the key of this certificate request (PKCS#10, PEM or DER) [default: a new key]
    #[arg(long, value_name = "FILE", requires = "out")]
    csr: Option<PathBuf>,
    /// Let the edge, door or builder be called at these host names and addresses, at most 16; other processes believe that it is the server
    /// with these names
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    server_name: Vec<String>,
    /// Write PREFIX.pem, PREFIX-key.pem and PREFIX-ca.pem; for an edge its directory of secrets, which is secrets in its data
    /// directory, with ca.pem, edge.pem, edge-key.pem and edge.key; for a door the same with ca.pem, door.pem and door-key.pem, and for a
    /// builder with ca.pem, builder.pem and builder-key.pem
    /// [default: print a bundle, one file for `tinwright context add NAME --bundle FILE`]
    #[arg(long, value_name = "PREFIX")]
    out: Option<PathBuf>,
}

/// Issues a certificate into files, or prints a bundle.
pub(super) async fn run(
    mut options: IssueOptions,
    servers: Vec<String>,
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    if let Some(place) = options.out.take() {
        return into_files(options, &place, io).await;
    }
    anyhow::ensure!(
        directory_file(options.role).is_none(),
        "the secrets of an edge, a door and a builder are a directory: give --out DIR"
    );
    let (request, key) = authority::request_certificate()?;
    let issued = issue(options, request, io).await?;
    let certificate = required(issued.certificate)?;
    let bundle = Bundle {
        servers: bundle::reachable(servers),
        ca: issued.authority_pem,
        certificate: issued.certificate_pem,
        key: key.expose().clone(),
    };
    eprintln!(
        "tinwright: certificate {} of {}: the bundle has its private key, so let nobody else read it",
        certificate.serial, certificate.subject
    );
    io.print(&bundle.text()?)
}

/// Issues the certificate that `options` describe, for the key of `certificate_request`.
async fn issue(
    options: IssueOptions,
    certificate_request: Vec<u8>,
    io: &Io<'_>,
) -> anyhow::Result<pb::IssueCertificateResponse> {
    let IssueOptions { role, subject, tenant, lifetime, csr: _, server_name, out: _ } = options;
    let request = pb::IssueCertificateRequest {
        role: role as i32,
        subject,
        tenant,
        lifetime: lifetime.map(prost_types::Duration::try_from).transpose()?,
        certificate_request,
        server_names: server_name,
    };
    Ok(io.call(request).await?)
}

async fn into_files(options: IssueOptions, place: &Path, io: &mut Io<'_>) -> anyhow::Result<()> {
    // The files come first: a certificate that cannot be stored is not issued.
    let mut files = NewFiles::default();
    let names = files.names(options.role, place)?;
    let mut certificate_file = files.create(&names.certificate)?;
    let mut authority_file = files.create(&names.authority)?;
    let mut edge_file = names.edge.map(|path| files.create(&path)).transpose()?;
    let certificate_request = match &options.csr {
        Some(path) => std::fs::read(path).with_context(|| format!("reading {}", path.display()))?,
        None => {
            let (request, key) = authority::request_certificate()?;
            write(&mut files.create(&names.key)?, key.expose())?;
            request
        }
    };
    let issued = issue(options, certificate_request, io).await?;
    write(&mut certificate_file, &issued.certificate_pem)?;
    write(&mut authority_file, &issued.authority_pem)?;
    if let Some(file) = &mut edge_file {
        anyhow::ensure!(!issued.edge_key.is_empty(), "the server is too old: it has no edges");
        write(file, &issued.edge_key)?;
    }
    files.keep();
    print(&[required(issued.certificate)?], true, &Format::Table.into(), io).await
}

/// Returns the beginning of the names of the files if the secrets of `role` are a directory: those of a process.
fn directory_file(role: Role) -> Option<&'static str> {
    match role {
        Role::Edge => Some("edge"),
        Role::Door => Some("door"),
        Role::Builder => Some("builder"),
        Role::Viewer | Role::Operator | Role::Admin => None,
    }
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
    /// Returns the names of the files for a certificate of `role`. For the secrets of a process the directory `place` is created, if it
    /// is missing.
    fn names(&mut self, role: Role, place: &Path) -> anyhow::Result<FileNames> {
        let file = directory_file(role);
        if file.is_some() && !place.exists() {
            let created = DirBuilder::new().recursive(true).mode(0o700).create(place);
            created.with_context(|| format!("creating {}", place.display()))?;
            self.directory = Some(place.to_owned());
        }
        let prefix = file.map_or_else(|| place.to_owned(), |name| place.join(name));
        let with = |end: &str| {
            let mut path = prefix.clone().into_os_string();
            path.push(end);
            PathBuf::from(path)
        };
        Ok(FileNames {
            certificate: with(".pem"),
            key: with("-key.pem"),
            authority: if file.is_some() { place.join("ca.pem") } else { with("-ca.pem") },
            edge: (role == Role::Edge).then(|| place.join("edge.key")),
        })
    }

    /// Creates the file `path`, which only its owner may read. A file that is there is not replaced.
    fn create(&mut self, path: &Path) -> anyhow::Result<File> {
        let created = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        let is_there = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        let created = created.map_err(|error| match is_there(&error) {
            true => anyhow::anyhow!(
                "{} exists already: give another --out, or remove it",
                path.display()
            ),
            false => anyhow::Error::from(error).context(format!("creating {}", path.display())),
        })?;
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
            // Without a certificate they have no use. A file that cannot be removed does no harm.
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
