//! Fields that the contract marks `secret`: views and logs are without them.
//!
//! `build.rs` generates from the options: a `Debug` without these fields, and [`Secrets`] for every message that has one.

use crate::common::v1::View;

/// A message with secret fields, its own or of messages inside of it.
pub trait Secrets {
    /// Empties every secret field: what a basic view shows.
    fn clear_secrets(&mut self);

    /// The message without its secrets.
    fn without_secrets(mut self) -> Self
    where
        Self: Sized,
    {
        self.clear_secrets();
        self
    }

    /// The message as `view` shows it.
    fn in_view(self, view: View) -> Self
    where
        Self: Sized,
    {
        match view {
            View::Full => self,
            View::Unspecified | View::Basic => self.without_secrets(),
        }
    }
}

include!(concat!(env!("OUT_DIR"), "/secrets.rs"));
include!(concat!(env!("OUT_DIR"), "/hegel_secrets.rs"));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::v1::{Hardware, Interface, Ipxe, Netboot};
    use crate::hegel::{GetResponse, SubscribeResponse};
    use crate::instance::v1::Instance;
    use crate::instance::v1::instance::{CustomIpxe, Os};
    use crate::power::v1::Bmc;
    use crate::workflow::v1::{Action, RedeemRequest, Workflow};

    fn secret() -> String {
        "hunter2".into()
    }

    fn instance() -> Instance {
        let script = CustomIpxe { contents: secret(), url: "http://t/1".into(), always_pxe: true };
        Instance {
            hostname: "web".into(),
            userdata: secret(),
            crypted_root_password: secret(),
            extra: secret().into(),
            template_values: [("key".into(), secret())].into(),
            vendor_data: secret(),
            network_config: secret(),
            lookup_id: secret(),
            os: Some(Os::CustomIpxe(script)),
            ..Default::default()
        }
    }

    fn hardware() -> Hardware {
        let script = || Some(Ipxe { contents: secret(), ..Ipxe::default() });
        let netboot = Netboot { ipxe: script(), boot_once: script(), ..Netboot::default() };
        let interface = Interface { netboot: Some(netboot), ..Interface::default() };
        Hardware { interfaces: vec![interface], extra: secret().into(), ..Hardware::default() }
    }

    fn workflow() -> Workflow {
        let secrets = || vec![secret()];
        let action = Action {
            environment: secrets(),
            command: secrets(),
            volumes: secrets(),
            on_timeout: secrets(),
            on_failure: secrets(),
            ..Action::default()
        };
        Workflow { rendered: secret(), actions: vec![action], ..Workflow::default() }
    }

    #[test]
    fn debug_shows_no_secret() {
        let bmc = Bmc { password: secret(), ..Default::default() };
        let redeem = RedeemRequest { boot_token: secret(), ..Default::default() };
        let (get, subscribe) =
            (GetResponse { json: secret() }, SubscribeResponse { json: secret() });
        let shown = format!(
            "{:?} {:?} {:?} {bmc:?} {redeem:?} {get:?} {subscribe:?}",
            instance(),
            hardware(),
            workflow()
        );
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains(r#"hostname: "web""#), "{shown}");
    }

    #[test]
    fn a_message_without_secrets_keeps_everything_else() {
        let shown = instance().without_secrets();
        let script =
            CustomIpxe { url: "http://t/1".into(), always_pxe: true, ..Default::default() };
        let os = Some(Os::CustomIpxe(script));
        assert!(shown == Instance { hostname: "web".into(), os, ..Default::default() });
        let shown = hardware().without_secrets();
        let netboot = shown.interfaces[0].netboot.as_ref().unwrap();
        assert_eq!((&netboot.ipxe, &netboot.boot_once), (&Some(Ipxe::default()), &netboot.ipxe));
        assert!(shown.extra.is_empty());
        let actions = vec![Action::default()];
        assert!(workflow().without_secrets() == Workflow { actions, ..Default::default() });
    }
}
