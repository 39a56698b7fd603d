//! Capabilities of Linux that the configuration needs and the process does not have (capabilities(7)).

use std::fmt;

use procfs::process::Process;

use crate::config::Config;

/// A capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Capability {
    NetBindService,
    NetAdmin,
}

impl Capability {
    /// Returns its number, which is that of its bit.
    fn number(self) -> u32 {
        match self {
            Self::NetBindService => 10,
            Self::NetAdmin => 12,
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NetBindService => "CAP_NET_BIND_SERVICE",
            Self::NetAdmin => "CAP_NET_ADMIN",
        })
    }
}

/// Adds the missing capabilities to an error of the start that says that a permission is missing.
pub(crate) fn explain(error: anyhow::Error, config: &Config) -> anyhow::Error {
    let is_denied = |cause: &(dyn std::error::Error + 'static)| {
        let kind = cause.downcast_ref().map(std::io::Error::kind);
        kind == Some(std::io::ErrorKind::PermissionDenied)
    };
    let effective = || Some(Process::myself().ok()?.status().ok()?.capeff);
    match (error.chain().any(is_denied), effective()) {
        (true, Some(effective)) => match hint(&needed(config), effective) {
            Some(hint) => anyhow::anyhow!("{error:#}: {hint}"),
            None => error,
        },
        (true, None) | (false, _) => error,
    }
}

/// Returns the capabilities without which a server with `config` cannot start.
fn needed(config: &Config) -> Vec<Capability> {
    let metadata = config.metadata_listen.iter();
    let gateway = config.gateway.iter().flat_map(|gateway| &gateway.listen);
    let has_low_port = config
        .listen
        .iter()
        .chain(metadata)
        .chain(gateway)
        .chain(std::iter::once(&config.metrics_listen))
        .any(|address| (1..1024).contains(&address.port()));
    let is_link_local = config.metadata.link_local.is_some();
    let binds = has_low_port || config.netboot.is_some() || is_link_local;
    let binds = binds.then_some(Capability::NetBindService);
    let changes = is_link_local.then_some(Capability::NetAdmin);
    binds.into_iter().chain(changes).collect()
}

/// Returns what to do if one of `needed` is not among the `effective` capabilities.
fn hint(needed: &[Capability], effective: u64) -> Option<String> {
    let is_missing = |one: &&Capability| effective >> one.number() & 1 == 0;
    let missing: Vec<_> = needed.iter().filter(is_missing).map(ToString::to_string).collect();
    let unit = missing.join(" ");
    let file = missing.join(",").to_lowercase();
    (!missing.is_empty()).then(|| {
        format!(
            "the process lacks {unit}; set AmbientCapabilities={unit} in the unit of systemd, or run `setcap {file}=ep` on the program"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_capabilities_are_named_with_what_to_do() {
        let needed = [Capability::NetBindService, Capability::NetAdmin];
        assert_eq!(hint(&needed, 1 << 10 | 1 << 12), None);
        let one = hint(&needed, 1 << 10).unwrap();
        assert_eq!(
            one,
            "the process lacks CAP_NET_ADMIN; set AmbientCapabilities=CAP_NET_ADMIN in the unit of systemd, or run `setcap cap_net_admin=ep` on the program"
        );
        let both = hint(&needed, 0).unwrap();
        assert!(both.contains("lacks CAP_NET_BIND_SERVICE CAP_NET_ADMIN;"), "{both}");
        assert!(both.contains("`setcap cap_net_bind_service,cap_net_admin=ep`"), "{both}");
    }
}
