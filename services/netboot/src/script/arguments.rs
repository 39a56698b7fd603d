//! The kernel's command line, word by word (netboot specification, section 8.2).

use super::{BadWord, Error, Word, named};
use crate::Mac;

/// The longest command line x86's boot protocol carries, in octets, without its NUL; arm64 kernels read as much.
const LONGEST: usize = 2047;
/// What UEFI puts before the arguments: the image's name. Counted everywhere, so that a list that fits one firmware
/// fits the other.
const IMAGE: &str = "kernel";

/// Which of the fetched images is the initramfs.
const INITRD: &str = "initrd=initrd";

/// Checked kernel arguments in order; of two with the same key the worker takes the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    line: String,
}

impl Arguments {
    /// The arguments every environment has: which image is the initramfs.
    fn begin() -> Self {
        Self { line: INITRD.into() }
    }

    fn push(&mut self, word: &Word) {
        self.line.push(' ');
        self.line.push_str(word.as_str());
    }

    fn set(&mut self, key: &'static str, value: Option<impl ToString>) -> Result<(), Error> {
        if let Some(value) = value {
            self.push(&named(key, &format!("{key}={}", value.to_string()))?);
        }
        Ok(())
    }

    /// Adds what the site or a record has to add, words apart by blanks. Returns those left out.
    fn extend(&mut self, lists: &[String]) -> Vec<BadWord> {
        let words = lists.iter().flat_map(|list| list.split_whitespace());
        words.filter_map(|word| word.parse().map(|word| self.push(&word)).err()).collect()
    }

    /// Without the initramfs, which an image's own boot menu names.
    pub fn beside_image(&self) -> &str {
        self.line.strip_prefix(INITRD).map_or(&*self.line, str::trim_start)
    }

    /// As it stands in the script.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Refuses what a kernel would silently cut.
    fn fits(&self) -> Result<(), Error> {
        let length = IMAGE.len() + 1 + self.line.len();
        if length > LONGEST { Err(Error::CommandLine(length)) } else { Ok(()) }
    }
}

/// What the worker is told through the kernel. What is empty or none is left out.
#[derive(Clone, Debug, Default)]
pub struct WorkerArguments {
    /// Site or data centre code.
    pub facility: String,
    /// Where the environment sends its log.
    pub syslog_host: Option<std::net::Ipv4Addr>,
    /// `host:port` of the control plane.
    pub grpc_authority: String,
    /// Whether that speaks TLS.
    pub tls: Option<bool>,
    /// The machine's id.
    pub worker_id: String,
    /// The interface it boots by.
    pub hw_addr: Option<Mac>,
    /// What occupies the machine.
    pub instance_id: String,
    /// The VLAN to tag for; 0 is none.
    pub vlan_id: u16,
    /// The one-time secret a worker proves itself with.
    pub boot_token: String,
    /// Where this boot's files are: the worker finds `ca.pem` below it.
    pub boot_url: String,
    /// Digest of the CA certificate at `boot_url`, in hex.
    pub ca_sha256: String,
    /// The server's clock in seconds since 1970.
    pub boot_time: Option<u64>,
    /// Whether the machine is x86, for the arguments only its kernels know.
    pub x86: bool,
    /// `console=` values, the last becoming `/dev/console`.
    pub consoles: Vec<String>,
    /// The site's additions, then the record's.
    pub extra: Vec<String>,
}

impl WorkerArguments {
    /// The command line, and those additions that cannot stand in a script and were left out: a typing error in a
    /// record must not keep a machine from booting, but somebody should hear of it. Our own values must all be there.
    pub fn arguments(&self) -> Result<(Arguments, Vec<BadWord>), Error> {
        let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let mut line = Arguments::begin();
        line.set("facility", some(&self.facility))?;
        line.set("syslog_host", self.syslog_host)?;
        line.set("grpc_authority", some(&self.grpc_authority))?;
        line.set("tinkerbell_tls", self.tls)?;
        line.set("worker_id", some(&self.worker_id))?;
        line.set("hw_addr", self.hw_addr)?;
        line.set("instance_id", some(&self.instance_id))?;
        line.set("vlan_id", (self.vlan_id != 0).then_some(self.vlan_id))?;
        line.set("boot_token", some(&self.boot_token))?;
        line.set("boot_url", some(&self.boot_url))?;
        line.set("ca_sha256", some(&self.ca_sha256))?;
        line.set("boot_time", self.boot_time)?;
        let iommu: &[String] = if self.x86 { &["intel_iommu=on iommu=pt".into()] } else { &[] };
        let mut left_out = line.extend(iommu);
        let consoles: Vec<_> =
            self.consoles.iter().map(|console| format!("console={console}")).collect();
        left_out.extend(line.extend(&consoles));
        left_out.extend(line.extend(&self.extra));
        line.fits()?;
        Ok((line, left_out))
    }
}
