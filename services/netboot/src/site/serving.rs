//! Settings of boot HTTP and TFTP.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use runtime::client_address::TrustedProxies;

/// Settings of boot HTTP and TFTP.
#[derive(Clone, Debug, Default)]
pub struct Serving {
    /// Proxies whose forwarded client address is trusted.
    pub trusted_proxies: TrustedProxies,
    /// Networks whose machines hide behind another address: there the MAC in the path is enough, and the script holds no
    /// identity.
    pub mac_only: Vec<IpNet>,
    /// True if a refusal is 401, which iPXE shows as "Permission denied", in place of 403.
    pub refuse_by_401: bool,
    /// True if scripts for a machine in a boot loop are delayed.
    pub hold_boot_loops: bool,
    /// True if `autoexec.ipxe` chains to the script; otherwise it is empty, and iPXE goes on with DHCP.
    pub autoexec_script: bool,
    /// Directory of further files for TFTP, such as firmware of Raspberry Pis.
    pub tftp_assets: Option<PathBuf>,
    /// True if TFTP answers from port 69 only, for firewalls that close other ports.
    pub tftp_single_port: bool,
    /// Images for virtual media.
    pub iso: Option<Iso>,
}

/// Images for virtual media.
#[derive(Clone, Debug)]
pub struct Iso {
    /// Directory with the source images.
    pub directory: PathBuf,
    /// Beginning of the placeholder that is replaced.
    pub placeholder: String,
    /// Networks of BMCs. A BMC's own address is in no record that netboot has.
    pub sources: Vec<IpNet>,
}

impl Serving {
    /// True if a machine at `source` is identified by its MAC only.
    pub fn is_mac_only(&self, source: IpAddr) -> bool {
        self.mac_only.iter().any(|network| network.contains(&source))
    }
}
