//! The parts of the records that an edge without metadata keeps on disk: they give addresses and refusals while the control
//! plane is out of reach. What only an open boot needs is left out.

use fleet::CacheContents;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::instance::v1::instance::Os;
use tinwright::secret::Secrets as _;

/// The parts of the records that netboot needs while the feeds are stale.
pub const CACHE_CONTENTS: CacheContents =
    CacheContents { scope: "fleet-netboot", hardware: trim_hardware, instance: trim_instance };

fn trim_hardware(hardware: &Hardware) -> Option<Hardware> {
    let mut cached = Hardware { extra: Vec::new(), disks: Vec::new(), ..hardware.clone() };
    for netboot in cached.interfaces.iter_mut().filter_map(|interface| interface.netboot.as_mut()) {
        let scripts = netboot.ipxe.iter_mut().chain(&mut netboot.boot_once);
        scripts.for_each(|script| blank(&mut script.contents));
    }
    Some(cached)
}

fn trim_instance(instance: &Instance) -> Option<Instance> {
    let mut whole = instance.clone();
    if let Some(Os::CustomIpxe(script)) = &mut whole.os {
        blank(&mut script.contents);
    }
    let os = whole.os.take();
    let cached = Instance { ssh_keys: Vec::new(), tags: Vec::new(), ..whole };
    Some(Instance { os, ..cached.without_secrets() })
}

/// Replaces `script`, if there is one: its presence decides what a machine boots; its text is served while the feeds are live
/// only.
fn blank(script: &mut String) {
    if !script.is_empty() {
        *script = "#!ipxe".into();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tinwright::instance::v1::instance::CustomIpxe;

    use super::*;

    #[test]
    fn no_secret_of_an_instance_is_cached_and_the_presence_of_a_script_is() {
        let script =
            CustomIpxe { contents: "set password hunter2".into(), ..CustomIpxe::default() };
        let instance = Instance {
            hostname: "web".into(),
            userdata: "hunter2".into(),
            userdata_bytes: b"hunter2".into(),
            extra: b"hunter2".into(),
            tags: vec!["rack=1".into()],
            os: Some(Os::CustomIpxe(script)),
            ..Instance::default()
        };
        let cached = trim_instance(&instance).unwrap();
        let blanked = CustomIpxe { contents: "#!ipxe".into(), ..CustomIpxe::default() };
        let os = Some(Os::CustomIpxe(blanked));
        assert!(cached == Instance { hostname: "web".into(), os, ..Instance::default() });
    }
}
