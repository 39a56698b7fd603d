//! Fields that the contract marks `secret`: views and logs are without them.
//!
//! `build.rs` generates from the options: a `Debug` without these fields, [`Secrets`] for every message that has one, and
//! [`Sealable`] for all messages of ours.

use prost::{DecodeError, Message};

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

// Messages that contain each other are on the heap.
impl<M: Secrets> Secrets for Box<M> {
    fn clear_secrets(&mut self) {
        M::clear_secrets(self);
    }
}

/// A message whose secret fields can be taken out, so that they are stored apart from the others.
pub trait Sealable {
    /// True if the message can have secret fields.
    const HAS_SECRETS: bool = false;

    /// Takes the secret fields out of the message. They are empty afterwards.
    fn take_secrets(&mut self) -> SecretPart {
        SecretPart::default()
    }

    /// Puts the secret fields of `part` back into the message they were taken from.
    fn put_secrets(&mut self, _part: &SecretPart) -> Result<(), DecodeError> {
        Ok(())
    }
}

impl<M: Sealable> Sealable for Box<M> {
    const HAS_SECRETS: bool = M::HAS_SECRETS;

    fn take_secrets(&mut self) -> SecretPart {
        M::take_secrets(self)
    }

    fn put_secrets(&mut self, part: &SecretPart) -> Result<(), DecodeError> {
        M::put_secrets(self, part)
    }
}

/// The secret fields of a message and of the messages in it. Fields are known by their numbers, so a later contract reads it.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
pub struct SecretPart {
    /// The encoded message with nothing but its own secret fields.
    #[prost(bytes = "vec", tag = "1")]
    own: Vec<u8>,
    /// Those of messages in it.
    #[prost(message, repeated, tag = "2")]
    nested: Vec<NestedPart>,
}

/// The secret fields of a message in another one.
#[derive(Clone, PartialEq, Message)]
#[prost(skip_debug)]
struct NestedPart {
    /// The number of the field that has the message.
    #[prost(uint32, tag = "1")]
    field: u32,
    /// Its place in a repeated field, from 0.
    #[prost(uint32, tag = "2")]
    index: u32,
    #[prost(message, optional, tag = "3")]
    part: Option<SecretPart>,
}

impl std::fmt::Debug for SecretPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SecretPart")
    }
}

impl std::fmt::Debug for NestedPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("NestedPart")
    }
}

impl SecretPart {
    /// The part whose own fields are all those of `message`.
    pub fn of(message: &impl Message) -> Self {
        Self { own: message.encode_to_vec(), nested: Vec::new() }
    }

    /// True if there is no secret.
    pub fn is_empty(&self) -> bool {
        self.own.is_empty() && self.nested.is_empty()
    }

    /// Adds the secret fields of the message at `index` of the field `field`.
    fn nest(&mut self, field: u32, index: usize, part: Self) {
        if !part.is_empty() {
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            self.nested.push(NestedPart { field, index, part: Some(part) });
        }
    }

    /// Puts the own secret fields into `message`.
    pub fn put_own(&self, message: &mut impl Message) -> Result<(), DecodeError> {
        message.merge(self.own.as_slice())
    }

    /// Puts the secret fields of the message at `index` of the field `field` into it.
    fn put_nested(
        &self,
        field: u32,
        index: usize,
        message: &mut impl Sealable,
    ) -> Result<(), DecodeError> {
        let here = |part: &&NestedPart| part.field == field && part.index as usize == index;
        let nested = self.nested.iter().find(here).and_then(|nested| nested.part.as_ref());
        nested.map_or(Ok(()), |part| message.put_secrets(part))
    }
}

/// What `build.rs` generates.
#[allow(clippy::all)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/secrets.rs"));
    include!(concat!(env!("OUT_DIR"), "/hegel_secrets.rs"));
}

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
            userdata_bytes: secret().into(),
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
            "{:?} {:?} {:?} {:?} {bmc:?} {redeem:?} {get:?} {subscribe:?}",
            instance().take_secrets(),
            instance(),
            hardware(),
            workflow()
        );
        assert!(!shown.contains("hunter2"), "{shown}");
        assert!(shown.contains(r#"hostname: "web""#), "{shown}");
    }

    #[test]
    fn the_secret_part_has_all_secrets_and_is_put_back_where_it_was() {
        fn check<M: Message + Sealable + Secrets + Clone + PartialEq + Default>(whole: &M) {
            let mut clear = whole.clone();
            let part = clear.take_secrets().encode_to_vec();
            assert!(clear == whole.clone().without_secrets());
            let mut stored = M::decode(clear.encode_to_vec().as_slice()).unwrap();
            stored.put_secrets(&SecretPart::decode(part.as_slice()).unwrap()).unwrap();
            assert!(stored == *whole);
            let mut again = whole.clone().without_secrets();
            assert!(again.take_secrets().is_empty());
        }
        check(&instance());
        check(&hardware());
        let mut workflow = workflow();
        workflow.actions.insert(0, Action { name: "first".into(), ..Action::default() });
        check(&workflow);
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
