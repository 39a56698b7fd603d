//! Explanations of clients of a pool.

use std::time::Duration;

use super::*;
use crate::allocation::tests::{FIRST_POOL_ADDRESS, MAC, UNKNOWN_CLIENT, site};
use crate::leases::{Claim, ClaimResult};
use crate::pool::Unknown;

#[tokio::test]
async fn a_client_without_a_record_is_handled_as_its_pool_says() {
    let unknown_machine = "no machine has this address";
    for (unknown, boot, address, status, fact) in [
        (Unknown::Ignore, pb::BootTarget::Unknown, "", 404, unknown_machine),
        (Unknown::Report, pb::BootTarget::Unknown, "", 404, unknown_machine),
        (
            Unknown::Enrol,
            pb::BootTarget::Generic,
            "192.0.2.100",
            200,
            "its subnet enrols machines without a record",
        ),
        (
            Unknown::Generic,
            pb::BootTarget::Generic,
            "",
            200,
            "its subnet boots machines without a record",
        ),
    ] {
        let site = site(unknown, 1).await;
        let told = asked(&site.boots, Target::Mac(UNKNOWN_CLIENT), pb::ClientClass::Ipxe);
        let (dhcp, script) = (told.dhcp.unwrap(), told.script.unwrap());
        assert_eq!((told.boot, dhcp.address.as_str()), (boot.into(), address), "{unknown:?}");
        assert_eq!(told.fact, fact, "{unknown:?}");
        assert_eq!(
            dhcp.boot_offered,
            boot == pb::BootTarget::Generic,
            "{unknown:?}: {}",
            dhcp.drop_reason
        );
        assert_eq!(script.status, status, "{unknown:?}: {}", script.refusal);
        let looked = told.inputs.unwrap();
        assert_eq!(
            (looked.pool.as_str(), looked.mac),
            ("192.0.2.0/24", UNKNOWN_CLIENT.to_string())
        );
    }
}

#[tokio::test]
async fn a_simulated_request_allocates_nothing() {
    let site = site(Unknown::Enrol, 1).await;
    for last in 0..30 {
        let told =
            asked(&site.boots, Target::Mac(Mac([2, 0, 0, 0, 1, last])), pb::ClientClass::Pxe);
        assert_eq!(told.dhcp.unwrap().address, "192.0.2.100", "{last}");
    }
    assert_eq!(site.unknown.count(), 0, "nobody has asked for an address");
    assert_eq!(site.leases.table(|table| table.free(&site.subnet, SystemTime::now())), 1);
    assert_eq!(site.leases.at(FIRST_POOL_ADDRESS, SystemTime::now()), None, "not offered, either");
}

#[tokio::test]
async fn a_machine_is_found_by_its_leased_address_which_no_other_client_gets() {
    let site = site(Unknown::Enrol, 1).await;
    let (now, duration) = (SystemTime::now(), Duration::from_secs(3600));
    let claim = Claim { address: FIRST_POOL_ADDRESS, mac: MAC, duration, at_port: None };
    assert_eq!(site.leases.claim(claim, now).await, ClaimResult::Granted(duration));
    let told =
        asked(&site.boots, Target::Address(FIRST_POOL_ADDRESS.into()), pb::ClientClass::Ipxe);
    let looked = told.inputs.unwrap();
    assert_eq!(looked.hardware_name, "node-1");
    assert_eq!(
        (looked.lease_state(), looked.lease_address),
        (pb::decision_inputs::LeaseState::Bound, FIRST_POOL_ADDRESS.to_string())
    );
    assert_eq!(looked.lease_expire_time, Some((now + duration).into()));
    assert_eq!(told.dhcp.unwrap().address, "192.0.2.100");
    assert_eq!(told.script.unwrap().status, 200);
    let other = asked(&site.boots, Target::Mac(UNKNOWN_CLIENT), pb::ClientClass::Ipxe);
    assert_eq!(other.dhcp.unwrap().drop_reason, "every address of the pool is taken");
}

#[tokio::test]
async fn a_client_without_a_record_is_found_by_its_leased_address() {
    let site = site(Unknown::Enrol, 1).await;
    let claim = Claim {
        address: FIRST_POOL_ADDRESS,
        mac: UNKNOWN_CLIENT,
        duration: Duration::from_secs(60),
        at_port: None,
    };
    site.leases.claim(claim, SystemTime::now()).await;
    let told =
        asked(&site.boots, Target::Address(FIRST_POOL_ADDRESS.into()), pb::ClientClass::Ipxe);
    assert_eq!(
        (told.boot, told.dhcp.unwrap().address),
        (i32::from(pb::BootTarget::Generic), FIRST_POOL_ADDRESS.to_string())
    );
    assert_eq!(told.inputs.unwrap().mac, UNKNOWN_CLIENT.to_string());
}

#[tokio::test]
async fn a_free_address_of_a_subnet_is_explained_by_the_policy_of_that_subnet() {
    for (unknown, boot, fact) in [
        (
            Unknown::Enrol,
            pb::BootTarget::Unknown,
            "no machine has this address, and no client leases it: its subnet enrols clients that lease one",
        ),
        (Unknown::Generic, pb::BootTarget::Generic, "its subnet boots machines without a record"),
        (Unknown::Report, pb::BootTarget::Unknown, "no machine has this address"),
    ] {
        let site = site(unknown, 1).await;
        let told =
            asked(&site.boots, Target::Address(FIRST_POOL_ADDRESS.into()), pb::ClientClass::Ipxe);
        let status = if boot == pb::BootTarget::Generic { 200 } else { 404 };
        assert_eq!((told.boot, told.fact.as_str()), (boot.into(), fact), "{unknown:?}");
        assert_eq!(told.script.unwrap().status, status, "{unknown:?}");
        let inputs = told.inputs.unwrap();
        assert_eq!(inputs.pool, "192.0.2.0/24", "{unknown:?}");
        assert_eq!(inputs.pool_unknown(), decision_inputs::unknown(unknown), "{unknown:?}");
    }
}
