//! The parts of the records that an edge without metadata keeps on disk: they give addresses and refusals while the control
//! plane is out of reach. What only an open boot needs is left out.

use fleet::CacheContents;
use tinwright::hardware::v1::Hardware;
use tinwright::instance::v1::Instance;
use tinwright::instance::v1::instance::Os;

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
    let mut cached = Instance {
        userdata: String::new(),
        vendor_data: String::new(),
        network_config: String::new(),
        crypted_root_password: String::new(),
        lookup_id: String::new(),
        extra: Vec::new(),
        template_values: Default::default(),
        ssh_keys: Vec::new(),
        tags: Vec::new(),
        ..instance.clone()
    };
    if let Some(Os::CustomIpxe(script)) = &mut cached.os {
        blank(&mut script.contents);
    }
    Some(cached)
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
            os: Some(Os::CustomIpxe(script)),
            ..Instance::default()
        };
        let cached = trim_instance(&instance).unwrap();
        assert_eq!((cached.hostname.as_str(), cached.userdata.as_str()), ("web", ""));
        let Some(Os::CustomIpxe(script)) = &cached.os else { panic!() };
        assert_eq!(script.contents, "#!ipxe");
    }
}
