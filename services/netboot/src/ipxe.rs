//! Boot scripts, in the words iPXE has (netboot specification, section 8).
//!
//! iPXE knows neither quotes nor escapes: it splits a line at blanks, then expands `${…}`. So everything pasted into a
//! script is a [`Word`], checked to be one, and a list of kernel arguments is a list of words. Only commands of
//! Debian's build of 2019 are used, and every script ends with `exit 1`: after a plain `exit` UEFI firmware opens its
//! set-up screen and does not boot the next device.

mod arguments;
mod word;

pub use arguments::{Arguments, WorkerArguments};
pub use word::{BadWord, Word};

/// The longest script somebody may bring along, in octets.
pub const LONGEST: usize = 64 * 1024;

/// Finds out what the machine's files are called by: a 64-bit BIOS machine runs iPXE's 32-bit build.
const ARCHITECTURE: &str = "set arch ${buildarch}
iseq ${arch} i386 && cpuid --ext 29 && set arch x86_64 ||
iseq ${arch} arm64 && set arch aarch64 ||
";

/// Sends the machine to its next boot device.
const EXIT: &str = "#!ipxe\nexit 1\n";

/// Why there is no script.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Error {
    /// A value that a script depends on cannot be pasted into one.
    #[error("{0} cannot stand in a script")]
    Value(&'static str, #[source] BadWord),
    /// The machine cannot fetch it.
    #[error("{0:?} is not an http, https or tftp address")]
    Scheme(String),
    /// It is larger than [`LONGEST`].
    #[error("a script of {0} octets is too long")]
    Length(usize),
    /// It is longer than kernels read.
    #[error("a kernel command line of {0} octets is too long")]
    CommandLine(usize),
}

/// Where a worker's environment is fetched from.
#[derive(Clone, Debug)]
pub struct WorkerEnvironment<'a> {
    /// The boot's own files, without a slash at the end.
    pub base_url: &'a str,
    /// Where the script tells how it went, which is elsewhere when the files are another server's.
    pub notes_url: &'a str,
    /// Where iPXE sends its log.
    pub syslog: Option<&'a str>,
    /// File name of the kernel below `base_url`.
    pub kernel: &'a str,
    /// File name of the initramfs below `base_url`.
    pub initrd: &'a str,
    /// The kernel's command line.
    pub arguments: &'a Arguments,
}

/// The script that boots the worker's environment, trying five times to fetch it.
pub fn worker(environment: &WorkerEnvironment<'_>) -> Result<String, Error> {
    let kernel = named("kernel", environment.kernel)?.as_str();
    let initrd = named("initrd", environment.initrd)?.as_str();
    let line = environment.arguments.line();
    let files = Files { before: "", kernel, initrd };
    fetching(environment.base_url, environment.notes_url, environment.syslog, &files, line)
}

/// The same for a machine that nobody knows: it names itself, and its kind of processor, in iPXE's own variables.
pub fn generic(
    base_url: &str,
    syslog: Option<&str>,
    arguments: &Arguments,
) -> Result<String, Error> {
    let line = [arguments.line(), " worker_id=${mac} hw_addr=${mac}"].concat();
    let (kernel, initrd) = ("vmlinuz-${arch}", "initramfs-${arch}");
    let files = Files { before: ARCHITECTURE, kernel, initrd };
    fetching(base_url, base_url, syslog, &files, &line)
}

/// What is fetched, and the lines that find out its names.
struct Files<'a> {
    before: &'a str,
    kernel: &'a str,
    initrd: &'a str,
}

fn fetching(
    base_url: &str,
    notes_url: &str,
    syslog: Option<&str>,
    files: &Files<'_>,
    line: &str,
) -> Result<String, Error> {
    let base = url("base URL", base_url)?.as_str();
    let notes = match notes_url == base_url {
        true => "${base}",
        false => url("URL of notes", notes_url)?.as_str(),
    };
    let [set_syslog, server, or_not] = match syslog {
        Some(server) => ["set syslog ", named("syslog server", server)?.as_str(), " ||\n"],
        None => [""; 3],
    };
    let Files { before, kernel, initrd } = files;
    // Put together in one go: machines ask for this by the rack, and formatting takes several times as long.
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
        line,
        " && initrd --name initrd ${base}/",
        initrd,
        RETRY,
        notes,
        "/started && imgfree note ||\nboot ||\n:failed\nimgfetch --name note ",
        notes,
        "/failed && imgfree note ||\nexit 1\n",
    ]
    .concat())
}

/// What follows the files: another try unless both are there, and then the first note.
const RETRY: &str = " && goto ready ||
iseq ${try} 5 && goto failed ||
inc try
echo retry ${try} in 5 s
sleep 5
goto again
:ready
imgfetch --name note ";

/// The script that runs somebody else's from `address`. Theirs is always chained to, never served as the first one:
/// whatever way it ends, ours goes on. One that ends in an error is run again, three times. `own_url` with `.started` is told
/// before, since afterwards the machine may be anything, and with `.failed` when it is given up.
pub fn custom(address: &str, own_url: &str) -> Result<String, Error> {
    let address = url("script address", address)?.as_str();
    let own = url("URL of notes", own_url)?.as_str();
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

/// Somebody else's script as it is served: with the mark iPXE knows scripts by, lines ended as iPXE ends them, and
/// otherwise as it came.
pub fn brought(text: &str) -> Result<String, Error> {
    let text = text.replace("\r\n", "\n");
    let marked = text
        .strip_prefix("#!ipxe")
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['\n', ' ']));
    let script = if marked { text } else { format!("#!ipxe\n{text}") };
    if script.len() > LONGEST { Err(Error::Length(script.len())) } else { Ok(script) }
}

/// The script that sends a machine to its disk. `sanboot` is for a BIOS that would come back to the network.
pub fn local_disk(sanboot: bool) -> &'static str {
    if sanboot { "#!ipxe\nsanboot --no-describe --drive 0x80 ||\nexit 1\n" } else { EXIT }
}

/// iPXE's shell: a console without a password.
pub const SHELL: &str = "#!ipxe\nshell ||\nexit 1\n";

/// The script that comes back for another one, showing what it runs on; `base_url` is the machine's own.
pub fn with_uuid(base_url: &str) -> Result<String, Error> {
    let base = url("base URL", base_url)?.as_str();
    let shown = "uuid=${uuid}&serial=${serial}&arch=${buildarch}&plat=${platform}";
    Ok(format!("#!ipxe\nchain {base}/auto.ipxe?{shown} ||\nexit 1\n"))
}

/// The configuration that sends PXELINUX's kind to the disk.
pub const PXELINUX_DISK: &str = "default local\nlabel local\n  localboot 1\n";

/// The environment as a configuration of PXELINUX's kind, which U-Boot and OPAL read.
pub fn pxelinux(environment: &WorkerEnvironment<'_>) -> Result<String, Error> {
    let base = url("base URL", environment.base_url)?.as_str();
    let kernel = named("kernel", environment.kernel)?.as_str();
    let initrd = named("initrd", environment.initrd)?.as_str();
    let line = environment.arguments.beside_image();
    Ok(format!(
        "default worker
label worker
  kernel {base}/{kernel}
  initrd {base}/{initrd}
  append {line}
"
    ))
}

/// What newer builds of iPXE run before anything else, where they are to be sent to a script by it; `base_url` is the
/// machine's own, or the site's and then `mac` is left to iPXE.
pub fn autoexec(base_url: &str, named: bool) -> Result<String, Error> {
    let base = url("base URL", base_url)?.as_str();
    let own = if named { "" } else { "/${mac:hexhyp}" };
    Ok(format!("#!ipxe\ndhcp\nchain {base}{own}/auto.ipxe\n"))
}

/// What chain-loads by labels, as Matchbox has it.
pub fn by_labels(base_url: &str) -> Result<String, Error> {
    let base = url("base URL", base_url)?.as_str();
    let labels = "uuid=${uuid}&mac=${mac:hexhyp}&hostname=${hostname}&serial=${serial}";
    Ok(format!("#!ipxe\nchain {base}/ipxe?{labels} ||\nexit 1\n"))
}

fn named<'a>(what: &'static str, value: &'a str) -> Result<Word<'a>, Error> {
    Word::try_from(value).map_err(|bad| Error::Value(what, bad))
}

fn url<'a>(what: &'static str, value: &'a str) -> Result<Word<'a>, Error> {
    let (scheme, _) = value.split_once("://").ok_or_else(|| Error::Scheme(value.into()))?;
    let known = ["http", "https", "tftp"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    if known { named(what, value) } else { Err(Error::Scheme(value.into())) }
}

#[cfg(test)]
mod tests;
