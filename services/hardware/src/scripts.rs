//! Scripts in updates: `ipxe` or `boot_once` without url and contents, as basic views show them, stands for the stored
//! script.

use tinwright::hardware::v1 as pb;

/// Restores in `new` the scripts of `old` that a basic view showed without text.
pub(crate) fn restore(old: &pb::Hardware, new: &mut pb::Hardware) {
    for interface in &mut new.interfaces {
        let mut before = old.interfaces.iter().filter(|old| old.mac == interface.mac);
        let Some(mut before) = before.next().cloned() else { continue };
        for (old, new) in scripts_mut(&mut before).into_iter().zip(scripts_mut(interface)) {
            if let (Some(old), Some(new)) = (old, new)
                && new.url.is_empty()
                && new.contents.is_empty()
            {
                new.contents = std::mem::take(&mut old.contents);
            }
        }
    }
}

/// True if `update` of the fields `paths` only removes one-shot scripts from `old`. An edge may change nothing else.
pub(crate) fn only_removes_one_shot(
    old: &pb::Hardware,
    update: &pb::Hardware,
    paths: &[String],
) -> bool {
    let mut rest = old.interfaces.clone();
    for (interface, new) in rest.iter_mut().zip(&update.interfaces) {
        let is_removed = new.netboot.as_ref().is_some_and(|netboot| netboot.boot_once.is_none());
        if let Some(netboot) = interface.netboot.as_mut().filter(|_| is_removed) {
            netboot.boot_once = None;
        }
    }
    paths == ["interfaces"] && rest == update.interfaces
}

/// Returns the two scripts that an interface may have.
fn scripts_mut(interface: &mut pb::Interface) -> [Option<&mut pb::Ipxe>; 2] {
    match &mut interface.netboot {
        Some(pb::Netboot { ipxe, boot_once, .. }) => [ipxe.as_mut(), boot_once.as_mut()],
        None => [None, None],
    }
}

#[cfg(test)]
mod tests {
    use tinwright::secret::Secrets as _;

    use super::*;

    fn script(contents: &str) -> Option<pb::Ipxe> {
        Some(pb::Ipxe { contents: contents.into(), ..pb::Ipxe::default() })
    }

    fn machine() -> pb::Hardware {
        let netboot = pb::Netboot {
            allow_pxe: true,
            ipxe: script("#!ipxe\nset password a"),
            boot_once: script("#!ipxe\nset password b"),
            ..pb::Netboot::default()
        };
        let mac = "02:00:00:00:00:01".to_owned();
        let first = pb::Interface { mac, netboot: Some(netboot), ..pb::Interface::default() };
        let second = pb::Interface { mac: "02:00:00:00:00:02".into(), ..pb::Interface::default() };
        let extra = b"{\"password\": \"c\"}".to_vec();
        pb::Hardware { interfaces: vec![first, second], extra, ..pb::Hardware::default() }
    }

    #[test]
    fn an_update_that_only_removes_one_shot_scripts_is_told_from_others() {
        let old = machine();
        let interfaces = ["interfaces".to_owned()];
        let is_allowed = |change: fn(&mut pb::Netboot), paths: &[String]| {
            let mut update = old.clone();
            change(update.interfaces[0].netboot.as_mut().unwrap());
            only_removes_one_shot(&old, &update, paths)
        };
        let remove = |netboot: &mut pb::Netboot| netboot.boot_once = None;
        assert!(is_allowed(remove, &interfaces) && is_allowed(|_| (), &interfaces));
        for paths in [vec![], vec!["interfaces".into(), "name".into()], vec!["name".into()]] {
            assert!(!is_allowed(remove, &paths), "{paths:?}");
        }
        assert!(!is_allowed(|netboot| netboot.ipxe = None, &interfaces));
        let replace = |netboot: &mut pb::Netboot| netboot.boot_once = Some(pb::Ipxe::default());
        assert!(!is_allowed(replace, &interfaces));
        let added = pb::Hardware { interfaces: old.interfaces[..1].to_vec(), ..old.clone() };
        assert!(!only_removes_one_shot(&old, &added, &interfaces));
        assert!(!only_removes_one_shot(&added, &old, &interfaces));
    }

    #[test]
    fn a_basic_view_shows_that_there_is_a_script_without_its_text() {
        let shown = machine().without_secrets();
        assert!(!format!("{shown:?}").contains("password"), "{shown:?}");
        let netboot = shown.interfaces[0].netboot.as_ref().unwrap();
        assert!(netboot.allow_pxe && netboot.ipxe.is_some() && netboot.boot_once.is_some());
    }

    #[test]
    fn a_basic_view_can_be_written_back_in_any_order() {
        let mut new = machine().without_secrets();
        new.interfaces.reverse();
        restore(&machine(), &mut new);
        new.interfaces.reverse();
        assert_eq!(new.interfaces, machine().interfaces);
    }

    #[test]
    fn a_replaced_or_removed_script_is_not_restored() {
        let mut new = machine().without_secrets();
        let netboot = new.interfaces[0].netboot.as_mut().unwrap();
        netboot.ipxe.as_mut().unwrap().url = "http://t/1".into();
        netboot.boot_once = None;
        let wanted = new.clone();
        restore(&machine(), &mut new);
        assert_eq!(new, wanted);
    }
}
