//! The publisher of Debian's cloud images, emulated on a host of the lab: the rack's image under the publisher's names, over HTTPS.
//!
//! The host finds it by [`Publisher::hosts`] in place of /etc/hosts, and trusts it by [`Publisher::authorities`] in place of the system's.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};

use crate::client::Client;
use crate::lab::{Lab, wait};
use setup::run;

/// The publisher's name.
const NAME: &str = "cloud.debian.org";
/// The address that the host has for it.
const ADDRESS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);
/// The folder with the newest image of Debian 12 on the publisher's server.
const FOLDER: &str = "images/cloud/bookworm/latest";
/// The image's name there.
const IMAGE: &str = "debian-12-generic-amd64.qcow2";
/// The longest time until it answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The publisher. It ends with the lab.
#[derive(Debug)]
pub struct Publisher {
    /// The names and addresses of hosts, as in hosts(5).
    pub hosts: PathBuf,
    /// The certificate of the authority that signed the publisher's, in PEM.
    pub authorities: PathBuf,
}

impl Publisher {
    /// Starts it on `host`, with the image in the compressed file `image`.
    pub fn start(lab: &mut Lab, host: &Client, image: &Path) -> anyhow::Result<Self> {
        let folder = lab.path("publisher");
        publish(image, &folder.join(FOLDER))?;
        let (hosts, authorities) = (lab.path("hosts"), lab.path("authorities.pem"));
        std::fs::write(&hosts, format!("127.0.0.1 localhost\n{ADDRESS} {NAME}\n"))?;
        write_certificate(lab, &authorities)?;
        let script = setup::root().join("tests/rack/assets/publisher.py");
        let mut python = host.command("python3");
        python.arg(script).arg(&folder).arg(ADDRESS.to_string());
        python.arg(lab.path("publisher.pem")).arg(lab.path("publisher-key.pem"));
        lab.start("publisher", &mut python)?;
        let url = format!("https://{NAME}/{FOLDER}/SHA512SUMS");
        wait("the publisher", START_TIMEOUT, || {
            let mut curl = host.command("curl");
            curl.args(["--silent", "--fail", "--output", "/dev/null", "--cacert"])
                .arg(&authorities);
            curl.args(["--resolve", &format!("{NAME}:443:{ADDRESS}"), &url]);
            curl.status().ok()?.success().then_some(())
        })
        .context(lab.log("publisher"))?;
        Ok(Self { hosts, authorities })
    }
}

/// Writes the image and its checksum to `folder`, under Debian's names, as qcow2.
fn publish(image: &Path, folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let mut unpack = Command::new("zstd");
    unpack.args(["--decompress", "--quiet", "--sparse"]).arg(image);
    let raw = folder.join("disk.raw");
    run(unpack.arg("-o").arg(&raw))?;
    let mut convert = Command::new("qemu-img");
    convert.args(["convert", "-f", "raw", "-O", "qcow2", "-c"]).arg(&raw);
    run(convert.arg(folder.join(IMAGE)))?;
    std::fs::remove_file(raw)?;
    let output = Command::new("sha512sum").arg(IMAGE).current_dir(folder).output()?;
    anyhow::ensure!(output.status.success(), "sha512sum: {}", output.status);
    Ok(std::fs::write(folder.join("SHA512SUMS"), output.stdout)?)
}

/// Writes the publisher's certificate and key to `lab`, and that of the authority which signed it to `authorities`.
fn write_certificate(lab: &Lab, authorities: &Path) -> anyhow::Result<()> {
    let mut authority = CertificateParams::default();
    authority.distinguished_name.push(DnType::CommonName, "authority of the rack");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority_key = KeyPair::generate()?;
    std::fs::write(authorities, authority.self_signed(&authority_key)?.pem())?;
    let (key, params) = (KeyPair::generate()?, CertificateParams::new([NAME.to_owned()])?);
    let certificate = params.signed_by(&key, &Issuer::new(authority, authority_key))?;
    std::fs::write(lab.path("publisher.pem"), certificate.pem())?;
    Ok(std::fs::write(lab.path("publisher-key.pem"), key.serialize_pem())?)
}
