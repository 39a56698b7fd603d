//! IPMI 2.0 over the network, by the program `ipmitool`: one process for each command.
//!
//! The password is passed in the environment of the process, never on its command line, which all users of this host can read. A
//! process is killed when it is late, or when nobody waits for it any more.

mod boot_flags;
mod error;
mod fru;
mod guid;
mod privileges;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use runtime::secret::Secret;
use tinwright::hardware::v1 as hw;
use tokio::process::Command;
use tokio::sync::OnceCell;

use self::boot_flags::BootFlags;
pub use self::error::Error;
use self::privileges::Privileges;
use crate::forms::{AcceptedForms, Form as _, Privilege};
use crate::plan::Call;
use crate::redfish::{Power, Protocol, System};

/// The program.
const PROGRAM: &str = "ipmitool";
/// Timeout of a command. By itself `ipmitool` gives up after 12 seconds without a response.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(20);
/// The seconds before the first repetition of a request, and the number of repetitions.
const RETRY_OPTIONS: [&str; 4] = ["-N", "1", "-R", "3"];
/// The UDP port of IPMI.
pub const DEFAULT_PORT: u16 = 623;
/// The longest user name (IPMI 2.0 §13.20).
pub const MAX_USERNAME_BYTES: usize = 16;
/// The longest password (IPMI 2.0 §13.31).
pub const MAX_PASSWORD_BYTES: usize = 20;
/// The cipher suites with authentication, integrity and encryption that `ipmitool` knows.
pub const CIPHER_SUITES: [u32; 4] = [3, 8, 12, 17];

/// Redfish's reset types, by which the plan calls power commands, and the words of `ipmitool`.
///
/// There is no `cycle`: it is over before a reading finds the machine off, and IPMI reports no time of the last reset. The plan
/// switches the machine off and on instead.
const RESETS: [(&str, &str); 4] =
    [("On", "on"), ("ForceOff", "off"), ("GracefulShutdown", "soft"), ("ForceRestart", "reset")];
/// Get System Boot Options, parameter 5: the boot flags (IPMI 2.0 §28.13).
const GET_BOOT_FLAGS: [&str; 6] = ["raw", "0x00", "0x09", "0x05", "0x00", "0x00"];
/// Set System Boot Options, parameter 3: the flags stay valid even if the machine does not start within a minute.
const KEEP_BOOT_FLAGS: [&str; 5] = ["raw", "0x00", "0x08", "0x03", "0x08"];
/// Prints the FRU data of the BMC itself.
const PRINT_FRU: [&str; 3] = ["fru", "print", "0"];
/// Get System GUID (IPMI 2.0 §22.14).
const GET_SYSTEM_GUID: [&str; 3] = ["raw", "0x06", "0x37"];
/// Set System Boot Options, parameter 5.
const SET_BOOT_FLAGS: [&str; 4] = ["raw", "0x00", "0x08", "0x05"];

/// The address and the credentials of a BMC.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// IP address or host name.
    pub host: String,
    /// The UDP port.
    pub port: u16,
    /// The user name.
    pub username: String,
    /// The password.
    pub password: Secret<String>,
    /// The cipher suite. None: the best that the BMC offers.
    pub cipher_suite: Option<u32>,
    /// The forms of requests that it accepted.
    pub accepted: AcceptedForms,
}

/// A client of one BMC.
#[derive(Debug)]
pub struct Ipmi {
    target: Endpoint,
    program: PathBuf,
    /// The privilege levels at which the BMC opened no session, and the forms that it accepted.
    privileges: Privileges,
    /// UUID of the machine, once it was asked for; empty if the BMC does not tell it.
    uuid: OnceCell<String>,
}

impl Ipmi {
    /// Creates a client for `target`. Sends nothing yet.
    pub fn new(target: Endpoint) -> Self {
        let privileges = Privileges::new(&target.accepted);
        Self { target, program: PROGRAM.into(), privileges, uuid: OnceCell::new() }
    }

    /// Returns the forms of requests that the BMC accepted, also before.
    pub fn accepted(&self) -> AcceptedForms {
        let mut accepted = self.target.accepted.clone();
        if let Some(level) = self.privileges.accepted() {
            accepted.accept(level);
        }
        accepted
    }

    /// Notes forms of requests that the BMC accepted.
    pub fn accept(&mut self, forms: AcceptedForms) {
        self.target.accepted.extend(forms);
    }

    /// Reads the state of the machine.
    pub async fn system(&self) -> Result<System, Error> {
        let power = power_state(&self.run(&["chassis", "power", "status"]).await?)?;
        let boot = match self.run(&GET_BOOT_FLAGS).await {
            Ok(text) => BootFlags::read(&text)?.to_override(),
            // A machine without boot flags can still be switched on and off.
            Err(Error::Refused { .. }) => boot_flags::none(),
            Err(error) => return Err(error),
        };
        let reset_types = RESETS.iter().map(|(reset, _)| (*reset).to_owned()).collect();
        let (protocol, uuid) = (Protocol::Ipmi, self.uuid().await);
        Ok(System { protocol, uuid, power, reset_types, boot, ..System::default() })
    }

    /// Returns the UUID of the machine. It is asked for once: a BMC that does not tell it must not delay each reading.
    async fn uuid(&self) -> String {
        let read = async || {
            let guid = self.run(&GET_SYSTEM_GUID).await;
            guid.map(|guid| guid::read(&guid)).unwrap_or_default()
        };
        self.uuid.get_or_init(read).await.clone()
    }

    /// Reads the inventory of the machine: its identity, if the BMC has FRU data and a system GUID. IPMI tells nothing of processors, memory
    /// and interfaces.
    pub async fn inventory(&self) -> Result<hw::BmcInventory, Error> {
        let fru = self.run_if_supported(&PRINT_FRU).await?;
        let guid = self.run_if_supported(&GET_SYSTEM_GUID).await?;
        Ok(hw::BmcInventory { uuid: guid::read(&guid), ..fru::read(&fru) })
    }

    /// Runs `ipmitool` with this command. Returns its output, or nothing if the BMC refuses the command.
    async fn run_if_supported(&self, command: &[&str]) -> Result<String, Error> {
        match self.run(command).await {
            Err(Error::Refused { .. }) => Ok(String::new()),
            result => result,
        }
    }

    /// Sends `call`. The caller has to read the system again to verify the effect.
    pub async fn call(&self, call: &Call) -> Result<(), Error> {
        match call {
            Call::Reset(reset) => {
                let word = RESETS.iter().find(|(known, _)| known == reset).map(|(_, word)| *word);
                let word = word.ok_or_else(|| Error::Unsupported((*reset).to_owned()))?;
                self.run(&["chassis", "power", word]).await?;
            }
            Call::Boot { request, .. } => {
                let flags = BootFlags::of(request)
                    .ok_or_else(|| Error::Unsupported(format!("{:?}", request.target)))?;
                match self.run(&KEEP_BOOT_FLAGS).await {
                    // Not every BMC has the parameter.
                    Ok(_) | Err(Error::Refused { .. }) => {}
                    Err(error) => return Err(error),
                }
                let bytes = flags.bytes().map(|byte| format!("{byte:#04x}"));
                let set = SET_BOOT_FLAGS.into_iter().chain(bytes.iter().map(String::as_str));
                self.run(&set.collect::<Vec<_>>()).await?;
            }
            Call::Media(_) => return Err(Error::Unsupported("virtual media".into())),
        }
        Ok(())
    }

    /// Runs `ipmitool` with this command at the lowest privilege level that suffices, and returns its output.
    async fn run(&self, command: &[&str]) -> Result<String, Error> {
        let mut refusal = None;
        for level in self.privileges.in_order() {
            match self.run_at(level, command).await {
                Err(error @ Error::Privilege(_)) => {
                    self.privileges.refuse(level);
                    refusal.get_or_insert(error);
                }
                Err(error) if error.is_for_privilege() => {
                    refusal = Some(error);
                }
                Ok(output) => {
                    self.privileges.accept(level);
                    return Ok(output);
                }
                Err(error) => return Err(error),
            }
        }
        Err(refusal.unwrap_or_else(|| Error::Privilege("it opened no session before".into())))
    }

    /// Runs `ipmitool` with this command at this privilege level, and returns its output.
    async fn run_at(&self, level: Privilege, command: &[&str]) -> Result<String, Error> {
        let Endpoint { host, port, username, password, cipher_suite, .. } = &self.target;
        let mut process = Command::new(&self.program);
        // The environment is emptied: other variables of the server could be taken for the password.
        process.env_clear().env("LC_ALL", "C").env("IPMI_PASSWORD", password.expose());
        process.envs(std::env::var_os("PATH").map(|path| ("PATH", path)));
        process.args(["-v", "-E", "-I", "lanplus", "-L", level.name()]).args(RETRY_OPTIONS);
        process.args(["-H", host, "-p", &port.to_string(), "-U", username]);
        if let Some(suite) = cipher_suite {
            process.args(["-C", &suite.to_string()]);
        }
        process.args(command).stdin(Stdio::null()).kill_on_drop(true);
        let output = tokio::time::timeout(COMMAND_TIMEOUT, process.output());
        let output = output.await.map_err(|_| Error::Timeout(COMMAND_TIMEOUT))?;
        let output = output.map_err(|error| {
            if error.kind() == std::io::ErrorKind::NotFound {
                return Error::NotInstalled(self.program.clone());
            }
            Error::NotStarted(error)
        })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(Error::read(&command.join(" "), &String::from_utf8_lossy(&output.stderr)))
    }
}

/// Returns the power state in the output of `chassis power status`, which may have other lines before it.
fn power_state(text: &str) -> Result<Power, Error> {
    let lines = text.lines().map(|line| line.trim().to_ascii_lowercase());
    let mut states = lines.filter_map(|line| {
        line.strip_prefix("chassis power is ").map(|state| match state.trim() {
            "on" => Power::On,
            "off" => Power::Off,
            _ => Power::Changing,
        })
    });
    states.next_back().ok_or_else(|| Error::Output(text.trim().to_owned()))
}

#[cfg(test)]
mod tests;
