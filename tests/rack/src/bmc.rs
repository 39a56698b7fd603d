//! The machines' BMCs: sushy-emulator over Redfish and TLS, in front of libvirt.

use std::time::Duration;

use anyhow::Context as _;
use rcgen::{CertificateParams, DnType, KeyPair, SanType};
use sha2::{Digest as _, Sha256};

use crate::lab::{Lab, wait};
use crate::machines::Hypervisor;

/// Its port, inside the lab.
const PORT: u16 = 8009;

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
        let program =
            setup::peers("tests/rack/assets/peers.sh")?.join("rack-venv/bin/sushy-emulator");
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "bmc of the rack");
        params.subject_alt_names = vec![SanType::IpAddress(std::net::Ipv4Addr::LOCALHOST.into())];
        let key = KeyPair::generate()?;
        let certificate = params.self_signed(&key)?;
        std::fs::write(lab.path("bmc.pem"), certificate.pem())?;
        std::fs::write(lab.path("bmc-key.pem"), key.serialize_pem())?;
        std::fs::create_dir(lab.path("sushy"))?;
        let (dir, uri) = (lab.dir().display().to_string(), &hypervisor.uri);
        let config = format!(
            "SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'
SUSHY_EMULATOR_LISTEN_PORT = {PORT}
SUSHY_EMULATOR_SSL_CERT = '{dir}/bmc.pem'
SUSHY_EMULATOR_SSL_KEY = '{dir}/bmc-key.pem'
SUSHY_EMULATOR_LIBVIRT_URI = '{uri}'
SUSHY_EMULATOR_STATE_DIR = '{dir}/sushy'
SUSHY_EMULATOR_BOOT_LOADER_MAP = {{'UEFI': {{'x86_64': '/usr/share/OVMF/OVMF_CODE_4M.fd'}}, 'Legacy': {{'x86_64': None}}}}
SUSHY_EMULATOR_SECURE_BOOT_DISABLED_NVRAM = '/usr/share/OVMF/OVMF_VARS_4M.fd'
"
        );
        std::fs::write(lab.path("sushy.conf"), config)?;
        let mut command = lab.command(program);
        command.arg("--config").arg(lab.path("sushy.conf"));
        // Images for virtual media are in the lab, which no proxy reaches.
        command.env("NO_PROXY", "*").env("no_proxy", "*");
        lab.start("sushy-emulator", &mut command)?;
        let url = format!("https://127.0.0.1:{PORT}");
        wait("the BMCs", Duration::from_secs(60), || get(lab, &url).ok())
            .context(lab.log("sushy-emulator"))?;
        // The emulator creates each database at the first request that needs it, and answers 500 if two such requests meet.
        for (path, database) in [(CHASSIS, "indicators"), (VIRTUAL_MEDIA, "vmedia")] {
            get(lab, &format!("{url}{path}"))?;
            let created = lab.path("sushy").join(format!("{database}.sqlite")).exists();
            anyhow::ensure!(created, "{path} of sushy-emulator did not create {database}.sqlite");
        }
        let digest = Sha256::digest(certificate.der());
        let certificate_sha256 = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { url, certificate_sha256 })
    }
}

/// Requests `url` inside `lab`. The response may have any status.
fn get(lab: &Lab, url: &str) -> anyhow::Result<()> {
    let mut curl = lab.command("curl");
    curl.args(["--silent", "--show-error", "--insecure", "--output", "/dev/null", url]);
    let status = curl.status()?;
    anyhow::ensure!(status.success(), "curl {url}: {status}");
    Ok(())
}
