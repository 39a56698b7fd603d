//! Fuzzing: feeds each codec, and the service behind it, with mutated inputs for a given time.
//!
//! ```text
//! seed, number ─▶ mutate: a valid input, changed ─▶ target: the codec and the service behind it
//!                                                     └─▶ feed: a broken invariant, a panic, a hang, growing memory
//! ```
//!
//! - [`mutate`]: creates inputs; each is derived from seed and number alone, so any input can be repeated.
//! - [`feed`]: runs the loop and detects failures.
//! - `site`: machines and their records. [`dhcp`], [`tftp`], [`syslog`], [`imds`], [`ial`]: the targets. No socket is opened.
//! - [`hex`]: inputs as text. `http_text`: texts as HTTP requests.

pub mod dhcp;
pub mod feed;
pub mod hex;
mod http_text;
pub mod ial;
pub mod imds;
pub mod mutate;
mod site;
pub mod syslog;
pub mod tftp;

use std::fmt;

use clap::ValueEnum;

/// A codec with the service behind it.
pub trait Target: Send {
    /// Returns valid inputs.
    fn corpus(&self) -> Vec<Vec<u8>>;

    /// Returns parts of inputs to insert: numbers, names, separators.
    fn words(&self) -> Vec<Vec<u8>>;

    /// Processes an input. Fails if an invariant is broken.
    fn take(&mut self, input: &[u8]) -> anyhow::Result<()>;
}

/// The name of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Codec {
    /// DHCP packets, and the server up to its socket.
    Dhcp,
    /// TFTP packets, file names, options and transfers.
    Tftp,
    /// Syslog messages in both formats, and their storage.
    Syslog,
    /// Metadata requests, and the whole service.
    Imds,
    /// Requests of an outside platform, and the gateway in front of its services.
    Ial,
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dhcp => "dhcp",
            Self::Tftp => "tftp",
            Self::Syslog => "syslog",
            Self::Imds => "imds",
            Self::Ial => "ial",
        })
    }
}

impl Codec {
    /// Creates the target.
    pub fn target(self) -> anyhow::Result<Box<dyn Target>> {
        Ok(match self {
            Self::Dhcp => Box::new(dhcp::Dhcp::new()?),
            Self::Tftp => Box::new(tftp::Tftp::new()),
            Self::Syslog => Box::new(syslog::Syslog::new()),
            Self::Imds => Box::new(imds::Imds::new()?),
            Self::Ial => Box::new(ial::Ial::new()?),
        })
    }
}
