//! The scripts of machines without a record. In a subnet that enrols them, a machine gets a token
//! for its report:
//!
//! ```text
//! iPXE fetches its script ─▶ script that fetches it again with the UUID ─▶ generic script with a token
//! ```
//!
//! The token is for the client that leases the address, which is also the owner of the address on our link, and for the UUID that it
//! presented. Everything else gets the generic script without a token, if the site has one for all machines.

use fleet::Freshness;
use runtime::boot_token::EnrolmentClaims;
use tinwright::HardwareId;
use uuid::Uuid;

use super::{BootRefusal, BootResult, BootScripts, Query, Script, ScriptFormat, broken};
use crate::Mac;
use crate::allocation::Allocator;
use crate::decision::{BootTarget, Fact};
use tinwright::netboot::v1::ScriptKind;

impl BootScripts {
    /// Renders the script of a machine without a record, whose address `holder` leases.
    pub(super) fn select_unknown(
        &self,
        asked: &mut Query<'_>,
        feed: Freshness,
        holder: Option<Mac>,
    ) -> BootResult<(Fact, Script)> {
        let request = asked.request;
        let (named, source) = (request.mac, request.source);
        let in_pool = |allocator: &Allocator| allocator.boots_unknown(named, source, holder);
        let subnet = self.allocator.as_deref().and_then(in_pool);
        let decision = self.decision(None, feed, subnet);
        let fact = decision.fact;
        let enrols = self.allocator.as_deref().and_then(|it| it.enrols(named, source, holder));
        let has_identity = decision.boot == BootTarget::Generic
            && request.format == ScriptFormat::Ipxe
            && !self.is_mac_only(request);
        let Some((mac, network)) = enrols.filter(|_| has_identity) else {
            return Ok((fact, self.render(None, decision, asked)?));
        };
        let owner = self.site.serving.source_check.admits([mac], request.neighbour);
        owner.map_err(|_| {
            BootRefusal::NotYours("the owner of the address is not the client that leases it")
        })?;
        let Some(uuid) = request.uuid.as_deref() else {
            return Ok((fact, self.ask_uuid(mac, request)?));
        };
        let enrolment = match uuid.parse::<Uuid>() {
            Ok(uuid) if !uuid.is_nil() => Some(EnrolmentClaims {
                id: HardwareId::new(),
                uuid: uuid.into_bytes(),
                mac,
                address: source,
                prefix_length: network.prefix_len(),
                expiry: 0,
            }),
            // Without a UUID a machine cannot enrol. Its worker says so on the console.
            Ok(_) | Err(_) => None,
        };
        let token = enrolment.map(|claims| self.tokens.mint_for_enrolment(claims, asked.now));
        let token = token.transpose().map_err(broken)?;
        let text = self.worker(None, asked, token)?;
        Ok((fact, Script { kind: ScriptKind::Generic, text }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::net::IpAddr;
    use std::time::{Duration, SystemTime};

    use runtime::SiteKey;
    use runtime::boot_token::{BootTokens, Purpose, VerifiedToken};
    use runtime::neighbour::NeighbourCheck;

    use super::*;
    use crate::allocation::tests::{FIRST_POOL_ADDRESS, Site, UNKNOWN_CLIENT, site};
    use crate::bootscripts::ScriptRequest;
    use crate::leases::Claim;
    use crate::pool::Unknown;

    const UUID: &str = "4c4c4544-0042-3010-8052-b4c04f4d3232";

    /// A site whose pool has leased its first address to the unknown client.
    async fn leased(unknown: Unknown) -> Site {
        let (site, address) = (site(unknown, 2).await, FIRST_POOL_ADDRESS);
        let duration = Duration::from_secs(600);
        let claim = Claim { address, mac: UNKNOWN_CLIENT, duration, at_port: None };
        site.leases.claim(claim, SystemTime::now()).await;
        site
    }

    fn request(uuid: Option<&str>) -> ScriptRequest {
        let uuid = uuid.map(str::to_owned);
        ScriptRequest {
            uuid,
            ..ScriptRequest::new(Some(UNKNOWN_CLIENT), FIRST_POOL_ADDRESS.into())
        }
    }

    fn script(site: &Site, request: &ScriptRequest) -> BootResult<Script> {
        site.boots.serve(request, SystemTime::now())
    }

    /// The claims of the token in a script; none without a token.
    fn claims(script: &Script) -> Option<EnrolmentClaims> {
        let token = script.text.split_once("boot_token=")?.1.split(' ').next()?;
        let tokens = BootTokens::new(&SiteKey::new([1; 32])).unwrap();
        let now = SystemTime::now();
        assert!(tokens.open(Purpose::Identity, token, now).is_err());
        let VerifiedToken { claims, .. } = tokens.open_for_enrolment(token, now).unwrap();
        Some(claims)
    }

    #[tokio::test]
    async fn a_machine_that_enrols_gets_a_token_for_itself_once_it_has_presented_its_uuid() {
        let site = leased(Unknown::Enrol).await;
        let first = script(&site, &request(None)).unwrap();
        assert_eq!((first.kind, claims(&first)), (ScriptKind::AskUuid, None));
        assert!(first.text.contains("02-00-00-00-00-09/auto.ipxe?uuid=${uuid}"), "{}", first.text);
        let second = script(&site, &request(Some(UUID))).unwrap();
        assert_eq!(second.kind, ScriptKind::Generic);
        let made = claims(&second).unwrap();
        assert_eq!((made.mac, made.prefix_length), (UNKNOWN_CLIENT, 24));
        assert_eq!(made.address, IpAddr::from(FIRST_POOL_ADDRESS));
        assert_eq!(Uuid::from_bytes(made.uuid).to_string(), UUID);
        let third = claims(&script(&site, &request(Some(UUID))).unwrap()).unwrap();
        assert_ne!(third.id, made.id, "each boot has an id of its own");
    }

    #[tokio::test]
    async fn nobody_else_gets_a_token() {
        let enrolling = leased(Unknown::Enrol).await;
        for uuid in ["", "${uuid}", "00000000-0000-0000-0000-000000000000"] {
            let without = script(&enrolling, &request(Some(uuid))).unwrap();
            assert_eq!(claims(&without), None, "{uuid:?}");
        }
        let other = Mac([2, 0, 0, 0, 0, 8]);
        let named = ScriptRequest { mac: Some(other), ..request(Some(UUID)) };
        assert!(script(&enrolling, &named).is_err(), "the address is leased to another client");
        let source = IpAddr::from([192, 0, 2, 101]);
        let elsewhere = ScriptRequest { source, ..request(Some(UUID)) };
        assert!(script(&enrolling, &elsewhere).is_err(), "not its leased address");
        let neighbour = NeighbourCheck::Owner(other);
        let stolen = script(&enrolling, &ScriptRequest { neighbour, ..request(Some(UUID)) });
        assert!(matches!(stolen, Err(BootRefusal::NotYours(_))), "{stolen:?}");
        let generic = leased(Unknown::Generic).await;
        let without = script(&generic, &request(Some(UUID))).unwrap();
        assert_eq!(claims(&without), None);
    }
}
