//! What is said of boot scripts and files over HTTP and TFTP, checked: the section `[boot]` of the file.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::ValueEnum;
use ipnet::IpNet;
use netboot::decision::{NoInstance, Policy};
use netboot::iso::scan::PLACEHOLDER;
use netboot::site::Serving;
use netboot::site::serving::Iso;
use runtime::client_address::TrustedProxies;
use runtime::network;
use serde::Deserialize;

/// What can be said of booting; in the file without the `boot_` before it.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[group(skip)] // its name would be that of the flags it is among
#[serde(deny_unknown_fields)]
pub struct Flags {
    /// What a machine without an instance boots [default: worker]
    #[arg(id = "boot_no_instance", long = "boot-no-instance", env = "TINWRIGHT_BOOT_NO_INSTANCE")]
    pub no_instance: Option<FreeMachine>,
    /// Proxies that are believed when they say for whom they ask, as ADDRESS/BITS
    #[arg(
        id = "boot_trusted_proxies",
        long = "boot-trusted-proxies",
        env = "TINWRIGHT_BOOT_TRUSTED_PROXIES",
        value_name = "NETWORK",
        value_delimiter = ','
    )]
    pub trusted_proxies: Option<Vec<String>>,
    /// Networks behind address translation, where a machine is known by its Ethernet address alone and gets no identity
    #[arg(
        id = "boot_mac_only",
        long = "boot-mac-only",
        env = "TINWRIGHT_BOOT_MAC_ONLY",
        value_name = "NETWORK",
        value_delimiter = ','
    )]
    pub mac_only: Option<Vec<String>>,
    /// Refuse with 401, which iPXE shows as "Permission denied", in the place of 403
    #[arg(
        id = "boot_refuse_by_401",
        long = "boot-refuse-by-401",
        env = "TINWRIGHT_BOOT_REFUSE_BY_401",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub refuse_by_401: Option<bool>,
    /// Let a machine wait that asks for more than 10 scripts in 10 minutes
    #[arg(
        id = "boot_hold_loops",
        long = "boot-hold-loops",
        env = "TINWRIGHT_BOOT_HOLD_LOOPS",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub hold_loops: Option<bool>,
    /// Send builds of iPXE that look for autoexec.ipxe to their script by it
    #[arg(
        id = "boot_autoexec_script",
        long = "boot-autoexec-script",
        env = "TINWRIGHT_BOOT_AUTOEXEC_SCRIPT",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub autoexec_script: Option<bool>,
    /// Directory of further files for TFTP, such as Raspberry Pi's firmware
    #[arg(
        id = "boot_tftp_assets",
        long = "boot-tftp-assets",
        env = "TINWRIGHT_BOOT_TFTP_ASSETS",
        value_name = "DIR"
    )]
    pub tftp_assets: Option<PathBuf>,
    /// Serve TFTP from port 69 throughout, for paths that are closed to other ports
    #[arg(
        id = "boot_tftp_single_port",
        long = "boot-tftp-single-port",
        env = "TINWRIGHT_BOOT_TFTP_SINGLE_PORT",
        num_args = 0..=1,
        default_missing_value = "true"
    )]
    pub tftp_single_port: Option<bool>,
    /// Directory of images for virtual media, served below /iso
    #[arg(id = "boot_iso", long = "boot-iso", env = "TINWRIGHT_BOOT_ISO", value_name = "DIR")]
    pub iso: Option<PathBuf>,
    /// What the 1024 bytes begin with that are replaced in them [default: as in Tinkerbell's images]
    #[arg(
        id = "boot_iso_placeholder",
        long = "boot-iso-placeholder",
        env = "TINWRIGHT_BOOT_ISO_PLACEHOLDER",
        value_name = "TEXT"
    )]
    pub iso_placeholder: Option<String>,
    /// Networks of the BMCs that fetch them
    #[arg(
        id = "boot_iso_sources",
        long = "boot-iso-sources",
        env = "TINWRIGHT_BOOT_ISO_SOURCES",
        value_name = "NETWORK",
        value_delimiter = ','
    )]
    pub iso_sources: Option<Vec<String>>,
    /// Certificate chain (PEM) of boot HTTPS; nothing is served in TLS if it is not said
    #[arg(
        id = "boot_https_certificate",
        long = "boot-https-certificate",
        env = "TINWRIGHT_BOOT_HTTPS_CERTIFICATE",
        value_name = "FILE"
    )]
    pub https_certificate: Option<PathBuf>,
    /// Its private key (PEM); iPXE wants RSA
    #[arg(
        id = "boot_https_key",
        long = "boot-https-key",
        env = "TINWRIGHT_BOOT_HTTPS_KEY",
        value_name = "FILE"
    )]
    pub https_key: Option<PathBuf>,
    /// Where boot HTTPS listens [default: 7443]
    #[arg(
        id = "boot_https_port",
        long = "boot-https-port",
        env = "TINWRIGHT_BOOT_HTTPS_PORT",
        value_name = "PORT"
    )]
    pub https_port: Option<u16>,
}

/// What a machine without an instance boots, as it is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FreeMachine {
    /// The worker's environment.
    #[default]
    Worker,
    /// Its disk.
    LocalDisk,
    /// iPXE's shell: a console without a password.
    Shell,
}

/// Boot HTTPS, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Https {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// Where it listens.
    pub port: u16,
}

/// What is said of booting, checked.
#[derive(Clone, Debug)]
pub struct Boot {
    /// What the records leave open.
    pub policy: Policy,
    /// How scripts and files are given out.
    pub serving: Serving,
    /// TLS; none where it is not wanted.
    pub https: Option<Https>,
}

impl Flags {
    /// What these say, and where they say nothing, what `file` does.
    pub(super) fn or(self, file: Self) -> Self {
        Self {
            no_instance: self.no_instance.or(file.no_instance),
            trusted_proxies: self.trusted_proxies.or(file.trusted_proxies),
            mac_only: self.mac_only.or(file.mac_only),
            refuse_by_401: self.refuse_by_401.or(file.refuse_by_401),
            hold_loops: self.hold_loops.or(file.hold_loops),
            autoexec_script: self.autoexec_script.or(file.autoexec_script),
            tftp_assets: self.tftp_assets.or(file.tftp_assets),
            tftp_single_port: self.tftp_single_port.or(file.tftp_single_port),
            iso: self.iso.or(file.iso),
            iso_placeholder: self.iso_placeholder.or(file.iso_placeholder),
            iso_sources: self.iso_sources.or(file.iso_sources),
            https_certificate: self.https_certificate.or(file.https_certificate),
            https_key: self.https_key.or(file.https_key),
            https_port: self.https_port.or(file.https_port),
        }
    }

    /// These, checked.
    pub(super) fn checked(self) -> anyhow::Result<Boot> {
        let no_instance = match self.no_instance.unwrap_or_default() {
            FreeMachine::Worker => NoInstance::Worker,
            FreeMachine::LocalDisk => NoInstance::LocalDisk,
            FreeMachine::Shell => NoInstance::Shell,
        };
        let policy = Policy { no_instance, ..Policy::default() };
        let https = self.https()?;
        Ok(Boot { policy, https, serving: self.serving()? })
    }

    fn https(&self) -> anyhow::Result<Option<Https>> {
        match (self.https_certificate.clone(), self.https_key.clone()) {
            (Some(certificate), Some(key)) => {
                let port = self.https_port.unwrap_or(7443);
                Ok(Some(Https { certificate, key, port }))
            }
            (None, None) => {
                anyhow::ensure!(
                    self.https_port.is_none(),
                    "boot.https_port is given, but boot.https_certificate is not"
                );
                Ok(None)
            }
            (Some(_), None) => {
                anyhow::bail!("boot.https_certificate is given without boot.https_key")
            }
            (None, Some(_)) => {
                anyhow::bail!("boot.https_key is given without boot.https_certificate")
            }
        }
    }

    fn serving(self) -> anyhow::Result<Serving> {
        let proxies = networks("boot.trusted_proxies", self.trusted_proxies)?;
        let sources = networks("boot.iso_sources", self.iso_sources)?;
        let placeholder = self.iso_placeholder.unwrap_or_else(|| PLACEHOLDER.into());
        anyhow::ensure!(
            (16..=1024).contains(&placeholder.len())
                && placeholder.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit()),
            "boot.iso_placeholder is not of 16 to 1024 lower-case letters and digits"
        );
        let iso = self.iso.map(|directory| Iso { directory, placeholder, sources });
        Ok(Serving {
            trusted_proxies: TrustedProxies::new(proxies).context("boot.trusted_proxies")?,
            mac_only: networks("boot.mac_only", self.mac_only)?,
            refuse_by_401: self.refuse_by_401.unwrap_or(false),
            hold_boot_loops: self.hold_loops.unwrap_or(false),
            autoexec_script: self.autoexec_script.unwrap_or(false),
            tftp_assets: self.tftp_assets,
            tftp_single_port: self.tftp_single_port.unwrap_or(false),
            iso,
        })
    }
}

/// Each of `texts` as a network.
fn networks(field: &str, texts: Option<Vec<String>>) -> anyhow::Result<Vec<IpNet>> {
    let read = |text: String| network::parse(&text).with_context(|| field.to_owned());
    texts.unwrap_or_default().into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(flags: Flags) -> String {
        format!("{:#}", flags.checked().unwrap_err())
    }

    #[test]
    fn everybody_is_no_proxy_and_the_field_is_named() {
        let trusted_proxies = Some(vec!["0.0.0.0/0".into()]);
        let why = refused(Flags { trusted_proxies, ..Flags::default() });
        assert_eq!(
            why,
            "boot.trusted_proxies: 0.0.0.0/0 would trust everybody: name the proxies themselves"
        );
        let why = refused(Flags { mac_only: Some(vec!["lan".into()]), ..Flags::default() });
        assert!(why.starts_with("boot.mac_only: \"lan\" is no network"), "{why}");
    }

    #[test]
    fn a_certificate_and_its_key_go_together() {
        let certificate = Flags { https_certificate: Some("c.pem".into()), ..Flags::default() };
        assert_eq!(
            refused(certificate.clone()),
            "boot.https_certificate is given without boot.https_key"
        );
        let both = Flags { https_key: Some("k.pem".into()), ..certificate };
        assert_eq!(both.checked().unwrap().https.unwrap().port, 7443);
        let alone = Flags { https_port: Some(443), ..Flags::default() };
        assert!(refused(alone).contains("boot.https_certificate is not"));
    }

    #[test]
    fn nothing_said_is_the_default() {
        let Boot { policy, serving, https } = Flags::default().checked().unwrap();
        assert_eq!((policy, https), (Policy::default(), None));
        assert!(serving.iso.is_none() && !serving.refuse_by_401 && serving.mac_only.is_empty());
    }
}
