//! The kernel's command line, word by word; `docs/reference/boot-scripts.md` lists the arguments.

use super::{BadWord, Error, Word};
use crate::Mac;

/// The longest command line x86's boot protocol carries, in octets, without its NUL; arm64 kernels read as much.
const MAX_COMMAND_LINE_BYTES: usize = 2047;
/// What UEFI puts before the arguments: the image's name. Counted everywhere, so that a list that fits one firmware
/// fits the other.
const IMAGE: &str = "kernel";

/// Names the fetched image that is the initramfs.
const INITRD: &str = "initrd=initrd";
/// Room for a usual command line, in octets.
const USUAL: usize = 1024;

/// Checked kernel arguments in order; of two with the same key the worker takes the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    line: String,
}

impl Arguments {
    /// The arguments every environment has: which image is the initramfs.
    fn begin() -> Self {
        let mut line = String::with_capacity(USUAL);
        line.push_str(INITRD);
        Self { line }
    }

    /// Adds `key=value`, unless the value is empty.
    fn set(&mut self, key: &'static str, value: &str) -> Result<(), Error> {
        if value.is_empty() {
            return Ok(());
        }
        self.line.push(' ');
        let begins = self.line.len();
        for part in [key, "=", value] {
            self.line.push_str(part);
        }
        let (_before, word) = self.line.split_at(begins);
        Word::try_from(word).map(drop).map_err(|bad| Error::Value(key, bad))
    }

    /// Adds the words of `list`. Words that cannot stand in a script are `left_out`.
    fn extend(&mut self, list: &str, left_out: &mut Vec<BadWord>) {
        for word in list.split_whitespace() {
            match Word::try_from(word) {
                Ok(word) => {
                    self.line.push(' ');
                    self.line.push_str(word.as_str());
                }
                Err(bad) => left_out.push(bad),
            }
        }
    }

    /// Returns the line without the initramfs, which an image's own boot menu names.
    pub fn beside_image(&self) -> &str {
        self.line.strip_prefix(INITRD).map_or(&*self.line, str::trim_start)
    }

    /// Returns the line as it stands in the script.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Refuses a line that a kernel would silently cut.
    fn fits(&self) -> Result<(), Error> {
        let length = IMAGE.len() + 1 + self.line.len();
        if length > MAX_COMMAND_LINE_BYTES { Err(Error::CommandLine(length)) } else { Ok(()) }
    }
}

/// Kernel arguments of the worker's environment. Empty ones are left out.
#[derive(Clone, Debug, Default)]
pub struct WorkerArguments<'a> {
    /// Site or data centre code.
    pub facility: &'a str,
    /// Address that the environment sends its log to.
    pub syslog_host: Option<&'a str>,
    /// `host:port` of the control plane.
    pub grpc_authority: &'a str,
    /// True if that speaks TLS.
    pub tls: Option<bool>,
    /// The machine's id.
    pub worker_id: &'a str,
    /// Interface that it boots from.
    pub hw_addr: Option<Mac>,
    /// Instance that occupies the machine.
    pub instance_id: &'a str,
    /// The VLAN to tag for; 0 is none.
    pub vlan_id: u16,
    /// Token that the worker proves the machine's identity with.
    pub boot_token: &'a str,
    /// URL of this boot's files: the worker fetches `ca.pem` below it.
    pub boot_url: &'a str,
    /// Digest of the CA certificate at `boot_url`, in hex.
    pub ca_sha256: &'a str,
    /// The server's clock in seconds since 1970.
    pub boot_time: Option<u64>,
    /// True if the machine is x86, for arguments of x86 kernels only.
    pub x86: bool,
    /// `console=` values, the last becoming `/dev/console`.
    pub consoles: &'a [String],
    /// The site's additions, then the record's.
    pub extra: Vec<&'a str>,
}

impl WorkerArguments<'_> {
    /// Returns the command line, and the additions that were left out since they cannot stand in a script: a typing error in
    /// a record must not keep a machine from booting, and is logged. Our own values must all be valid.
    pub fn arguments(&self) -> Result<(Arguments, Vec<BadWord>), Error> {
        let mut line = Arguments::begin();
        line.set("facility", self.facility)?;
        line.set("syslog_host", self.syslog_host.unwrap_or_default())?;
        line.set("grpc_authority", self.grpc_authority)?;
        line.set("tinkerbell_tls", self.tls.map_or("", |tls| if tls { "true" } else { "false" }))?;
        line.set("worker_id", self.worker_id)?;
        line.set("hw_addr", &text_of(self.hw_addr))?;
        line.set("instance_id", self.instance_id)?;
        line.set("vlan_id", &text_of((self.vlan_id != 0).then_some(self.vlan_id)))?;
        line.set("boot_token", self.boot_token)?;
        line.set("boot_url", self.boot_url)?;
        line.set("ca_sha256", self.ca_sha256)?;
        line.set("boot_time", &text_of(self.boot_time))?;
        let mut left_out = Vec::new();
        if self.x86 {
            line.extend("intel_iommu=on iommu=pt", &mut left_out);
        }
        for console in self.consoles {
            line.extend(&["console=", console].concat(), &mut left_out);
        }
        for list in &self.extra {
            line.extend(list, &mut left_out);
        }
        line.fits()?;
        Ok((line, left_out))
    }
}

fn text_of(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
