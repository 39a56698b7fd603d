//! What machines send, spoiled: every codec is fed good inputs with something wrong in them, for as long as one likes.
//!
//! ```text
//! seed, number ─▶ spoil: a good input, changed ─▶ target: the codec and the service behind it
//!                                                    └─▶ feed: a broken rule, a panic, a hang, growing memory
//! ```
//!
//! - [`spoil`]: inputs; each follows from seed and number alone, so that any is made again.
//! - [`feed`]: the loop, and what it watches.
//! - `site`: the machines there are. [`dhcp`], [`tftp`], [`syslog`], [`imds`]: the targets. No socket is opened, and nothing is sent.
//! - [`hex`]: inputs as people copy them.

pub mod dhcp;
pub mod feed;
pub mod hex;
pub mod imds;
mod site;
pub mod spoil;
pub mod syslog;
pub mod tftp;

use std::fmt;

use clap::ValueEnum;

/// A codec and what stands behind it.
pub trait Target: Send {
    /// Inputs as good peers send them.
    fn corpus(&self) -> Vec<Vec<u8>>;

    /// What such inputs are made of: numbers, names, marks.
    fn words(&self) -> Vec<Vec<u8>>;

    /// Takes an input. Fails where a rule is broken; a panic is as bad.
    fn take(&mut self, input: &[u8]) -> anyhow::Result<()>;
}

/// Which target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Codec {
    /// DHCP packets, and the server up to its socket.
    Dhcp,
    /// TFTP packets, names, options and transfers.
    Tftp,
    /// Syslog lines of both forms, and where they are kept.
    Syslog,
    /// Requests for metadata, and the whole service.
    Imds,
}

impl fmt::Display for Codec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dhcp => "dhcp",
            Self::Tftp => "tftp",
            Self::Syslog => "syslog",
            Self::Imds => "imds",
        })
    }
}

impl Codec {
    /// The target, as after a start.
    pub fn target(self) -> anyhow::Result<Box<dyn Target>> {
        Ok(match self {
            Self::Dhcp => Box::new(dhcp::Dhcp::new()?),
            Self::Tftp => Box::new(tftp::Tftp::new()),
            Self::Syslog => Box::new(syslog::Syslog::new()),
            Self::Imds => Box::new(imds::Imds::new()?),
        })
    }
}
