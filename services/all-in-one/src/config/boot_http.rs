//! The options of boot scripts and files over HTTP and TFTP: the section `[boot]` of the file.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::ValueEnum;
use ipnet::IpNet;
use netboot::decision::{NoInstance, Policy};
use netboot::iso::PLACEHOLDER;
use netboot::site::{Iso, Serving};
use runtime::client_address::TrustedProxies;
use runtime::network;
use serde::Deserialize;
use workflow::lifecycle::WorkerTimeouts;

use super::metadata::Source;

/// The options of boot scripts and files. Defaults are those of the arguments; `Default` is for skipped arguments only.
#[derive(Clone, Debug, Default, clap::Args, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BootSection {
    /// Boot this on machines without an instance
    #[arg(default_value = "worker")]
    pub no_instance: FreeMachine,
    /// Trust these proxies, as ADDRESS/BITS, to name the client
    #[arg(value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default)]
    pub trusted_proxies: Vec<String>,
    /// Identify machines in these networks behind address translation by their Ethernet address alone; they get no identity
    #[arg(value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default)]
    pub mac_only: Vec<String>,
    /// Check in this way that a request for a script or a certificate comes from its machine
    #[arg(value_name = "CHECK", default_value = "on-link")]
    pub source_check: Source,
    /// Refuse with 401, which iPXE shows as "Permission denied", instead of 403
    pub refuse_by_401: bool,
    /// Prepare a machine again after this many minutes without a step of its boot
    #[arg(value_name = "MINUTES", default_value = "30")]
    pub silent_minutes: u32,
    /// Prepare a machine again this many minutes after the last step of its boot, if its worker did not come
    #[arg(value_name = "MINUTES", default_value = "10")]
    pub step_minutes: u32,
    /// Delay machines that request more than 10 scripts in 10 minutes
    pub hold_loops: bool,
    /// Point builds of iPXE that request autoexec.ipxe to their script by it
    pub autoexec_script: bool,
    /// Serve further files of this directory by TFTP, such as the firmware of Raspberry Pi
    #[arg(value_name = "DIR")]
    pub tftp_assets: Option<PathBuf>,
    /// Serve the private files of outside platforms in this directory below /platform, to machines whose boot gate is open
    #[arg(value_name = "DIR")]
    pub platform_files: Option<PathBuf>,
    /// Send TFTP transfers from port 69 too, for networks that filter other ports
    pub tftp_single_port: bool,
    /// Serve the images for virtual media in this directory below /iso
    #[arg(value_name = "DIR")]
    pub iso: Option<PathBuf>,
    /// Replace the 1024 bytes of images that start with this text [default: that of Tinkerbell's images]
    #[arg(value_name = "TEXT")]
    pub iso_placeholder: Option<String>,
    /// Serve images to BMCs in these networks, as ADDRESS/BITS
    #[arg(value_name = "NETWORK", value_delimiter = ',')]
    #[serde(default)]
    pub iso_sources: Vec<String>,
    /// Serve boot HTTPS with this certificate chain (PEM) [default: no HTTPS]
    #[arg(value_name = "FILE")]
    pub https_certificate: Option<PathBuf>,
    /// Use this private key (PEM) of the certificate; iPXE needs RSA
    #[arg(value_name = "FILE")]
    pub https_key: Option<PathBuf>,
    /// Serve boot HTTPS on this port [default: 7443]
    #[arg(value_name = "PORT")]
    pub https_port: Option<u16>,
}

/// The boot target of machines without an instance, as the operator names it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FreeMachine {
    /// The worker's environment.
    #[default]
    Worker,
    /// The disk.
    LocalDisk,
    /// iPXE's shell: a console without a password.
    Shell,
}

/// Settings of boot HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Https {
    /// The certificate chain.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The port.
    pub port: u16,
}

/// Checked settings of boot scripts and files.
#[derive(Clone, Debug)]
pub struct Boot {
    /// The decisions that the records leave open.
    pub policy: Policy,
    /// Settings of scripts and files.
    pub serving: Serving,
    /// Boot HTTPS, if it is configured.
    pub https: Option<Https>,
}

impl BootSection {
    /// Checks the options.
    pub(super) fn checked(self) -> anyhow::Result<Boot> {
        let no_instance = match self.no_instance {
            FreeMachine::Worker => NoInstance::Worker,
            FreeMachine::LocalDisk => NoInstance::LocalDisk,
            FreeMachine::Shell => NoInstance::Shell,
        };
        let policy = Policy { no_instance, ..Policy::default() };
        let https = self.https()?;
        Ok(Boot { policy, https, serving: self.serving()? })
    }

    /// Checks the time for which the workers of prepared machines are awaited.
    pub(super) fn worker_timeouts(&self) -> anyhow::Result<WorkerTimeouts> {
        let minutes = |option, count: u32| {
            anyhow::ensure!(count > 0, "{option} is 0");
            Ok(Duration::from_secs(u64::from(count) * 60))
        };
        Ok(WorkerTimeouts {
            silent: minutes("boot.silent_minutes", self.silent_minutes)?,
            step: minutes("boot.step_minutes", self.step_minutes)?,
        })
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
            source_check: self.source_check.into(),
            refuse_by_401: self.refuse_by_401,
            hold_boot_loops: self.hold_loops,
            autoexec_script: self.autoexec_script,
            tftp_assets: self.tftp_assets,
            platform_files: self.platform_files,
            tftp_single_port: self.tftp_single_port,
            iso,
        })
    }
}

/// Parses each of `texts` as a network.
fn networks(option: &str, texts: Vec<String>) -> anyhow::Result<Vec<IpNet>> {
    let parse = |text: String| network::parse(&text).with_context(|| option.to_owned());
    texts.into_iter().map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the section with the default beneath it.
    fn section(text: &str) -> BootSection {
        crate::config::tests::options(&format!("[boot]\n{text}")).unwrap().boot
    }

    fn error_of(text: &str) -> String {
        format!("{:#}", section(text).checked().unwrap_err())
    }

    #[test]
    fn an_invalid_network_is_refused_with_the_option() {
        assert_eq!(
            error_of("trusted_proxies = ['0.0.0.0/0']"),
            "boot.trusted_proxies: 0.0.0.0/0 would trust everybody: name the proxies themselves"
        );
        let error = error_of("mac_only = ['lan']");
        assert!(error.starts_with("boot.mac_only: \"lan\" is "), "{error}");
    }

    #[test]
    fn a_certificate_and_its_key_go_together() {
        let certificate = "https_certificate = 'c.pem'";
        assert_eq!(error_of(certificate), "boot.https_certificate is given without boot.https_key");
        let both = section(&format!("{certificate}\nhttps_key = 'k.pem'"));
        assert_eq!(both.checked().unwrap().https.unwrap().port, 7443);
        assert!(error_of("https_port = 443").contains("boot.https_certificate is not"));
    }

    #[test]
    fn the_defaults_are_those_of_the_server() {
        let Boot { policy, serving, https } = section("").checked().unwrap();
        assert_eq!((policy, https), (Policy::default(), None));
        assert!(serving.iso.is_none() && !serving.refuse_by_401 && serving.mac_only.is_empty());
        assert_eq!(section("").worker_timeouts().unwrap(), WorkerTimeouts::DEFAULT);
    }

    #[test]
    fn the_directory_of_private_files_is_passed_on() {
        let serving = section("platform_files = '/srv/private'").checked().unwrap().serving;
        assert_eq!(serving.platform_files, Some("/srv/private".into()));
        assert_eq!(section("").checked().unwrap().serving.platform_files, None);
    }

    #[test]
    fn the_wait_for_a_worker_is_in_minutes_and_at_least_one() {
        let timeouts = section("silent_minutes = 90\nstep_minutes = 1").worker_timeouts().unwrap();
        let [silent, step] = [90 * 60, 60].map(Duration::from_secs);
        assert_eq!(timeouts, WorkerTimeouts { silent, step });
        let refused = section("step_minutes = 0").worker_timeouts().unwrap_err();
        assert_eq!(refused.to_string(), "boot.step_minutes is 0");
    }
}
