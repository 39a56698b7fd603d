//! Texts of boot scripts in iPXE's language. Kinds, arguments and URLs are listed in `docs/reference/boot-scripts.md`.
//!
//! iPXE knows neither quotes nor escapes: it splits a line at blanks, then expands `${…}`. So every value in a script is
//! a [checked word](check_word), and kernel arguments are a list of words. Only commands of Debian's build of 2019 are used,
//! and every script ends with `exit 1`: after a plain `exit` UEFI firmware opens its set-up screen and does not boot the next
//! device.

use tinwright::check;
use tinwright::netboot::v1::ScriptKind;

/// Octets of the longest custom script.
pub const MAX_SCRIPT_BYTES: usize = 64 * 1024;

/// Sets the architecture in the names of the files: a 64-bit BIOS machine runs iPXE's 32-bit build.
const ARCHITECTURE: &str = "set arch ${buildarch}
iseq ${arch} i386 && cpuid --ext 29 && set arch x86_64 ||
iseq ${arch} arm64 && set arch aarch64 ||
";
/// Arguments of a machine without a record.
const MACHINE: &str = " worker_id=${mac} hw_addr=${mac}";

/// The longest command line that x86's boot protocol carries, in octets, without its NUL; arm64 kernels read as much.
const MAX_COMMAND_LINE_BYTES: usize = 2047;
/// The image's name, which UEFI puts before the arguments. Counted everywhere, so that a list that fits one firmware fits the
/// other.
const IMAGE: &str = "kernel";
/// The fetched image that is the initramfs.
const INITRD: &str = "initrd=initrd";
/// Octets of a usual command line.
const USUAL_BYTES: usize = 1024;
/// Script that boots the next device.
const EXIT: &str = "#!ipxe\nexit 1\n";

/// Reason for which there is no script.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A value that a script depends on cannot stand in one.
    #[error("{0} cannot stand in a script")]
    Value(&'static str, #[source] BadWord),
    /// The machine cannot fetch it.
    #[error("{0:?} is not an http, https or tftp address")]
    Scheme(String),
    /// It is larger than [`MAX_SCRIPT_BYTES`].
    #[error("a script of {0} octets is too long")]
    Length(usize),
    /// It is longer than kernels read.
    #[error("a kernel command line of {0} octets is too long")]
    CommandLine(usize),
}

/// Checked kernel arguments in order; of two with the same key the worker takes the last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    line: String,
    /// Where the URL of the boot's files begins in the line.
    boot_url: Option<usize>,
    /// Additions that were left out, since they cannot stand in a script: a typing error in a record must not keep a machine
    /// from booting.
    pub left_out: Vec<BadWord>,
}

impl Default for Arguments {
    /// Returns the argument that every environment has.
    fn default() -> Self {
        let mut line = String::with_capacity(USUAL_BYTES);
        line.push_str(INITRD);
        Self { line, boot_url: None, left_out: Vec::new() }
    }
}

impl Arguments {
    /// Adds `key=value`, unless the value is empty. It must be valid: it is our own.
    pub fn set(&mut self, key: &'static str, value: &str) -> Result<(), Error> {
        if value.is_empty() {
            return Ok(());
        }
        self.line.push(' ');
        let start = self.line.len();
        self.line.extend([key, "=", value]);
        let (_before, word) = self.line.split_at(start);
        check_word(word).map(drop).map_err(|bad| Error::Value(key, bad))
    }

    /// Adds the URL of the boot's files.
    pub fn set_boot_url(&mut self, url: &str) -> Result<(), Error> {
        self.set("boot_url", url)?;
        self.boot_url = self.line.len().checked_sub(url.len());
        Ok(())
    }

    /// Returns the line before and after the URL of the boot's files, if that is `url`.
    fn around_boot_url(&self, url: &str) -> Option<(&str, &str)> {
        let (before, rest) = self.line.split_at_checked(self.boot_url?)?;
        Some((before, rest.strip_prefix(url)?))
    }

    /// Adds the words of `list`. Words that cannot stand in a script are left out.
    pub fn extend(&mut self, list: &str) {
        for word in list.split_whitespace() {
            match check_word(word) {
                Ok(word) => self.line.extend([" ", word]),
                Err(bad) => self.left_out.push(bad),
            }
        }
    }

    /// Returns the line without the initramfs, which an image's own boot menu names.
    pub fn without_initrd(&self) -> &str {
        self.line.strip_prefix(INITRD).map_or(&*self.line, str::trim_start)
    }

    /// Returns the line as it stands in the script.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// Refuses a line that a kernel would silently cut.
    pub fn check_length(&self) -> Result<(), Error> {
        let length = IMAGE.len() + 1 + self.line.len();
        if length > MAX_COMMAND_LINE_BYTES { Err(Error::CommandLine(length)) } else { Ok(()) }
    }
}

/// An environment in memory, as a script fetches it.
#[derive(Clone, Debug)]
pub struct Environment<'a> {
    /// URL of the files, without a slash at the end.
    pub base_url: &'a str,
    /// URL that the script reports its status to; another one if the files are on another server.
    pub status_url: &'a str,
    /// URL of our HTTP, without a slash at the end.
    pub site_url: &'a str,
    /// URL that the script fetches a new script from.
    pub script_url: &'a str,
    /// Address that iPXE sends its log to.
    pub syslog: Option<&'a str>,
    /// File names of the kernel and the initramfs below `base_url`. None for a machine without a record: iPXE's variables name
    /// the machine and its architecture.
    pub files: Option<[&'a str; 2]>,
    /// The kernel's command line.
    pub arguments: &'a Arguments,
}

/// Renders the script that boots an environment. It fetches the files until it has them, with pauses of 20 s.
///
/// After nine attempts it requests a new script, because its tokens expire after 15 minutes (`runtime::boot_token`): the nine
/// take three minutes if each fails at once, so that this is no boot loop, and less than 15 if each fails after a minute. The
/// new script replaces this one, so that scripts do not nest. If it cannot be fetched, only that is repeated. The script ends
/// without a boot only if the server refused a new one three times: it answers `/healthz`, and has nothing to boot.
pub fn load(environment: &Environment<'_>) -> Result<String, Error> {
    let Environment { base_url, status_url, syslog, files, arguments, .. } = environment;
    let [site, script] =
        [url("site URL", environment.site_url)?, url("script URL", environment.script_url)?];
    let base = url("base URL", base_url)?;
    let status = match status_url == base_url {
        true => "${base}",
        false => url("status URL", status_url)?,
    };
    // Short scripts fit into one segment of TCP.
    let [arguments, own_url, more_arguments] = match arguments.around_boot_url(base) {
        Some((before, after)) => [before, "${base}", after],
        None => [arguments.line(), "", ""],
    };
    let [set_syslog, server, or_not] = match syslog {
        Some(server) => ["set syslog ", word("syslog server", server)?, " ||\n"],
        None => [""; 3],
    };
    let [before, kernel, initrd, machine] = match files {
        Some([kernel, initrd]) => ["", word("kernel", kernel)?, word("initrd", initrd)?, ""],
        None => [ARCHITECTURE, "vmlinuz-${arch}", "initramfs-${arch}", MACHINE],
    };
    // One concatenation: whole racks request this at once, and formatting takes several times as long.
    Ok([
        "#!ipxe\nset base ",
        base,
        "\n",
        before,
        set_syslog,
        server,
        or_not,
        "set try:int32 0\n:again\nimgfree ||\nkernel --name kernel ${base}/",
        kernel,
        " ",
        arguments,
        own_url,
        more_arguments,
        machine,
        " && initrd --name initrd ${base}/",
        initrd,
        RETRY,
        script,
        NEW_SCRIPT,
        site,
        REFUSED,
        status,
        "/started && imgfree note ||\nboot ||\n:failed\nimgfetch --name note ",
        status,
        "/failed && imgfree note ||\nexit 1\n",
    ]
    .concat())
}

/// Lines after the files: another attempt unless both were fetched.
const RETRY: &str = " && goto ready ||
inc try
echo files not fetched, attempt ${try} of 9, next in 20 s
sleep 20
iseq ${try} 9 || goto again
set refused:int32 0
:new
chain --replace ";

/// Lines after the URL of a new script.
const NEW_SCRIPT: &str = " ||
imgfetch --name note ";

/// Lines after the URL of the site: another attempt to get a new script unless it was refused, and then the report of the
/// start.
const REFUSED: &str = "/healthz && imgfree note && inc refused ||
iseq ${refused} 3 && goto failed ||
echo no new script, next attempt in 20 s
sleep 20
goto new
:ready
imgfetch --name note ";

/// Renders the wrapper that runs the custom script at `address`. A custom script is chained to and never served directly:
/// the wrapper goes on however it ends. One that ends in an error is run again, three times. `own_url` with `.started` is
/// fetched before, since afterwards the machine may run anything, and with `.failed` when the wrapper gives up.
///
/// The address may name [`SCRIPT_URL_SETTINGS`](check::SCRIPT_URL_SETTINGS): iPXE puts in the
/// machine's values.
pub fn custom(address: &str, own_url: &str) -> Result<String, Error> {
    url("script address", &check::expand_script_url(address))?;
    let own = url("status URL", own_url)?;
    Ok(format!(
        "#!ipxe
imgfetch --name note {own}.started && imgfree note ||
set try:int32 0
:again
chain --autofree {address} && goto end ||
iseq ${{try}} 3 && goto failed ||
inc try
sleep 5
goto again
:failed
imgfetch --name note {own}.failed && imgfree note ||
:end
exit 1
"
    ))
}

/// Returns the text of a custom script as it is served: with the line that marks an iPXE script, and with line ends of iPXE.
pub fn custom_text(text: &str) -> Result<String, Error> {
    let text = text.replace("\r\n", "\n");
    let marked = text
        .strip_prefix("#!ipxe")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['\n', ' ']));
    let script = if marked { text } else { format!("#!ipxe\n{text}") };
    if script.len() > MAX_SCRIPT_BYTES { Err(Error::Length(script.len())) } else { Ok(script) }
}

/// Returns the script that boots the disk. `sanboot` is for a BIOS that would try the network again.
pub fn local_disk(sanboot: bool) -> &'static str {
    if sanboot { "#!ipxe\nsanboot --no-describe --drive 0x80 ||\nexit 1\n" } else { EXIT }
}

/// iPXE's shell: a console without a password.
pub const SHELL: &str = "#!ipxe\nshell ||\nexit 1\n";

/// Renders the script that repeats the request with the machine's UUID. `base_url` is the machine's own. The next script replaces
/// it, since a worker's script may request it again and again.
pub fn with_uuid(base_url: &str) -> Result<String, Error> {
    let base = url("base URL", base_url)?;
    let labels = "uuid=${uuid}&serial=${serial}&arch=${buildarch}&plat=${platform}";
    Ok(format!("#!ipxe\nchain --replace {base}/auto.ipxe?{labels} ||\nexit 1\n"))
}

/// PXELINUX configuration that boots the disk.
pub const PXELINUX_DISK: &str = "default local\nlabel local\n  localboot 1\n";

/// Renders the environment as a PXELINUX configuration, which U-Boot and OPAL read.
pub fn pxelinux(environment: &Environment<'_>) -> Result<String, Error> {
    let [kernel, initrd] = environment.files.unwrap_or_default();
    Ok(format!(
        "default worker
label worker
  kernel {base}/{kernel}
  initrd {base}/{initrd}
  append {line}
",
        base = url("base URL", environment.base_url)?,
        kernel = word("kernel", kernel)?,
        initrd = word("initrd", initrd)?,
        line = environment.arguments.without_initrd(),
    ))
}

/// Renders the script that newer builds of iPXE run first. `base_url` is the machine's own if `named`, else the site's, and
/// iPXE adds its MAC.
pub fn autoexec(base_url: &str, named: bool) -> Result<String, Error> {
    let base = url("base URL", base_url)?;
    let own = if named { "" } else { "/${mac:hexhyp}" };
    Ok(format!("#!ipxe\ndhcp\nchain {base}{own}/auto.ipxe\n"))
}

/// Renders the script that chains with labels, as Matchbox does.
pub fn by_labels(base_url: &str) -> Result<String, Error> {
    let base = url("base URL", base_url)?;
    let labels = "uuid=${uuid}&mac=${mac:hexhyp}&hostname=${hostname}&serial=${serial}";
    Ok(format!("#!ipxe\nchain {base}/ipxe?{labels} ||\nexit 1\n"))
}

/// A text that iPXE would not read as one word, or not take as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{word:?} {reason}")]
pub struct BadWord {
    /// The text.
    pub word: String,
    /// The rule that it breaks.
    pub reason: &'static str,
}

/// Returns `text` if iPXE reads it as one word and takes it as it stands.
pub fn check_word(text: &str) -> Result<&str, BadWord> {
    // No early return, so that the compiler tests many octets at a time: every value of a script is checked here.
    let plain = text.bytes().fold(true, |all, it| all & it.is_ascii_graphic() & (it != b'$'));
    let graphic = || text.bytes().all(|it| it.is_ascii_graphic());
    let reason = match text {
        "" => "is empty",
        _ if !plain && !graphic() => "has a blank or a character outside printable ASCII",
        _ if text.starts_with('#') => "begins with #, as a comment does",
        "||" | "&&" | ";" => "is an operator",
        _ if !plain && text.contains("${") => "has an expansion",
        _ if text.ends_with('\\') => "ends with a backslash, which joins the next line",
        _ => return Ok(text),
    };
    Err(BadWord { word: text.into(), reason })
}

fn word<'a>(name: &'static str, value: &'a str) -> Result<&'a str, Error> {
    check_word(value).map_err(|bad| Error::Value(name, bad))
}

fn url<'a>(name: &'static str, value: &'a str) -> Result<&'a str, Error> {
    let begin = |scheme: &str| value.get(..scheme.len());
    let has = |scheme| begin(scheme).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme));
    let is_url = ["http://", "https://", "tftp://"].into_iter().any(has);
    if is_url { word(name, value) } else { Err(Error::Scheme(value.into())) }
}

/// Returns the label of a script's kind in logs, metrics and timelines.
pub fn kind_label(kind: ScriptKind) -> &'static str {
    match kind {
        ScriptKind::Unspecified => "none",
        ScriptKind::Worker => "worker",
        ScriptKind::Custom => "custom",
        ScriptKind::CustomOnce => "custom_once",
        ScriptKind::LocalDisk => "local_disk",
        ScriptKind::Shell => "shell",
        ScriptKind::Generic => "generic",
        ScriptKind::AskUuid => "ask_uuid",
        ScriptKind::Node => "node",
    }
}

#[cfg(test)]
mod tests;
