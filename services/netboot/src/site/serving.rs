//! How scripts and files are given out.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use runtime::client_address::TrustedProxies;

/// What the operator said of boot HTTP and TFTP.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// Proxies whose word on who asks is believed.
    pub trusted_proxies: TrustedProxies,
    /// Networks whose machines hide behind another address: there the Ethernet address in the path is believed, and the
    /// script holds no identity (netboot specification, G3).
    pub mac_only: Vec<IpNet>,
    /// Whether a refusal is 401, which iPXE shows as "Permission denied", in the place of 403 (G6).
    pub refuse_by_401: bool,
    /// Whether a machine that boots again and again has to wait (13.1, `boot_loop`).
    pub hold_boot_loops: bool,
    /// Whether iPXE is sent to its script by `autoexec.ipxe`; otherwise to DHCP, by an empty one (7.5).
    pub autoexec_script: bool,
    /// Directory of further files for TFTP: firmware, Raspberry Pi's above all.
    pub tftp_assets: Option<PathBuf>,
    /// Whether TFTP answers from port 69 throughout, for paths that a firewall closes to other ports.
    pub tftp_single_port: bool,
    /// Images for virtual media.
    pub iso: Option<Iso>,
}

/// Images for virtual media (netboot specification, section 10).
#[derive(Clone, Debug)]
pub struct Iso {
    /// Directory with the source images.
    pub directory: PathBuf,
    /// What the text to be replaced begins with.
    pub placeholder: String,
    /// Where BMCs ask from. A BMC's address is in no record of netboot's, so its network is.
    pub sources: Vec<IpNet>,
}

impl Serving {
    /// Whether at `source` the Ethernet address has to do.
    pub fn is_mac_only(&self, source: IpAddr) -> bool {
        self.mac_only.iter().any(|network| network.contains(&source))
    }
}
