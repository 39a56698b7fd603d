//! The machines' BMCs: sushy-emulator over Redfish and TLS, in front of libvirt.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::process::Command;
use std::time::Duration;

use anyhow::Context as _;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use sha2::{Digest as _, Sha256};

use crate::client::Client;
use crate::lab::{Lab, wait};
use crate::machines::Hypervisor;

/// Its port, inside the lab.
const PORT: u16 = 8009;
/// The port of BMCs (DSP0266).
const HTTPS_PORT: u16 = 443;

/// The chassis that sushy-emulator has without configuration.
const CHASSIS: &str = "/redfish/v1/Chassis/15693887-7984-9484-3272-842188918912";
/// A virtual CD drive. The machine need not exist.
const VIRTUAL_MEDIA: &str = "/redfish/v1/Systems/none/VirtualMedia/Cd";

/// The Redfish service of all machines.
#[derive(Clone, Debug)]
pub struct Redfish {
    /// The base URL.
    pub url: String,
    /// SHA-256 of its certificate, in hex.
    pub certificate_sha256: String,
}

impl Redfish {
    /// Starts sushy-emulator in `lab`.
    pub fn start(lab: &mut Lab, hypervisor: &Hypervisor) -> anyhow::Result<Self> {
        Self::listen(lab, hypervisor, None, SocketAddrV4::new(Ipv4Addr::LOCALHOST, PORT))
    }

    /// Does the same on `host`, whose address is `address`, at the port that BMCs have.
    pub fn start_on(
        lab: &mut Lab,
        hypervisor: &Hypervisor,
        host: &Client,
        address: Ipv4Addr,
    ) -> anyhow::Result<Self> {
        Self::listen(lab, hypervisor, Some(host), SocketAddrV4::new(address, HTTPS_PORT))
    }

    fn listen(
        lab: &mut Lab,
        hypervisor: &Hypervisor,
        host: Option<&Client>,
        address: SocketAddrV4,
    ) -> anyhow::Result<Self> {
        let program =
            setup::peers("tests/rack/assets/peers.sh")?.join("rack-venv/bin/sushy-emulator");
        let certificate_sha256 = write_certificate(lab, *address.ip())?;
        std::fs::create_dir(lab.path("sushy"))?;
        std::fs::write(lab.path("sushy.conf"), configuration(lab, hypervisor, address))?;
        let command = |lab: &Lab, program: &OsStr| match host {
            Some(host) => host.command(program),
            None => lab.command(program),
        };
        let mut sushy = command(lab, program.as_os_str());
        sushy.arg("--config").arg(lab.path("sushy.conf"));
        // Images for virtual media are in the lab, which no proxy reaches.
        sushy.env("NO_PROXY", "*").env("no_proxy", "*");
        lab.start("sushy-emulator", &mut sushy)?;
        let url = match address.port() {
            HTTPS_PORT => format!("https://{}", address.ip()),
            _ => format!("https://{address}"),
        };
        let get = |lab: &Lab, url: &str| get(command(lab, "curl".as_ref()), url);
        wait("the BMCs", Duration::from_secs(60), || get(lab, &url).ok())
            .context(lab.log("sushy-emulator"))?;
        // The emulator creates each database at the first request that needs it, and answers 500 if two such requests meet.
        for (path, database) in [(CHASSIS, "indicators"), (VIRTUAL_MEDIA, "vmedia")] {
            get(lab, &format!("{url}{path}"))?;
            let created = lab.path("sushy").join(format!("{database}.sqlite")).exists();
            anyhow::ensure!(created, "{path} of sushy-emulator did not create {database}.sqlite");
        }
        Ok(Self { url, certificate_sha256 })
    }
}

/// Writes a certificate for `address` and its key to `lab`. Returns its SHA-256 in hex.
fn write_certificate(lab: &Lab, address: Ipv4Addr) -> anyhow::Result<String> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "bmc of the rack");
    params.subject_alt_names = vec![SanType::IpAddress(address.into())];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    std::fs::write(lab.path("bmc.pem"), certificate.pem())?;
    std::fs::write(lab.path("bmc-key.pem"), key.serialize_pem())?;
    let digest = Sha256::digest(certificate.der());
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Returns the configuration of sushy-emulator.
fn configuration(lab: &Lab, hypervisor: &Hypervisor, address: SocketAddrV4) -> String {
    let (dir, uri) = (lab.dir().display(), &hypervisor.uri);
    format!(
        "SUSHY_EMULATOR_LISTEN_IP = '{ip}'
SUSHY_EMULATOR_LISTEN_PORT = {port}
SUSHY_EMULATOR_SSL_CERT = '{dir}/bmc.pem'
SUSHY_EMULATOR_SSL_KEY = '{dir}/bmc-key.pem'
SUSHY_EMULATOR_LIBVIRT_URI = '{uri}'
SUSHY_EMULATOR_STATE_DIR = '{dir}/sushy'
SUSHY_EMULATOR_BOOT_LOADER_MAP = {{'UEFI': {{'x86_64': '/usr/share/OVMF/OVMF_CODE_4M.fd'}}, 'Legacy': {{'x86_64': None}}}}
SUSHY_EMULATOR_SECURE_BOOT_DISABLED_NVRAM = '/usr/share/OVMF/OVMF_VARS_4M.fd'
",
        ip = address.ip(),
        port = address.port(),
    )
}

/// Requests `url` by `curl`. The response may have any status.
fn get(mut curl: Command, url: &str) -> anyhow::Result<()> {
    curl.args(["--silent", "--show-error", "--insecure", "--output", "/dev/null", url]);
    let output = curl.output()?;
    let message = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{url}: {}", message.trim());
    Ok(())
}
