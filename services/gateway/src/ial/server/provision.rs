//! `server/provision`: one instance for one machine of the platform, for ever.
//!
//! The platform's id of its machine is the instance's external id, which the store gives to one instance only. A repeated call finds that
//! instance, whichever process created it. An order without such an id has an external id of its host name, its location and a number: that of
//! the orders for this name that came before it and ended. Of two such orders at once, the store refuses one.

use std::collections::BTreeMap;

use aws_lc_rs::digest;
use axum::response::Response;
use serde_json::Value;
use tinwright::hardware::v1 as hw;
use tinwright::instance::v1 as inst;
use tonic::{Code as Grpc, Status};

use super::view;
use crate::errors::reason;
use crate::ial::catalogue;
use crate::ial::fault::{Code, Fault};
use crate::ial::location::{binding_in_force, check_compatible};
use crate::ial::object::Object;
use crate::ial::requests::{Provision, ProvisionOptions};
use crate::ial::responses::{Provisioned, success};
use crate::ial::session::{Found, HUB, LOCATION, MODEL, Session, ZONE, mismatch};
use crate::ial::wrapper::PlatformId;
use crate::ial::{configuration, provider, status};

/// The annotation of instances with `location_modified` of the answer to their order.
const MODIFIED: &str = "ial/location_modified";

/// Answers `server/provision`.
pub(in crate::ial) async fn provision(
    session: &Session,
    request: &Object<'_>,
) -> Result<Response, Fault> {
    let wanted = Provision::read(request)?;
    let (sent, by_platform) = (wanted.configuration.as_ref(), external_id(&wanted));
    if let Some(external_id) = &by_platform {
        match find(session, external_id).await? {
            Found::Instance(known) => {
                check_same(session, &wanted, &known).await?;
                configuration::check(session, sent, &wanted.location).await?;
                return Ok(answer(&known));
            }
            Found::Gone => return Err(decommissioned()),
            Found::Nothing => {}
        }
    }
    let location = session.location(&wanted.location).await?;
    let model = session.model(&wanted.model).await?;
    configuration::check(session, sent, &wanted.location).await?;
    check_compatible(session, &location)?;
    check_offered(session, &wanted, &location, &model).await?;
    check_hostname(session, &wanted).await?;
    let binding = binding_in_force(session, &location).await?;
    let is_modified = configuration::is_stale(sent, binding.as_ref());
    let order = Order { session, wanted: &wanted, location: &location, model: &model, is_modified };
    let created = match by_platform {
        Some(external_id) => order.create(&external_id).await?,
        None => order.create_by_hostname().await?,
    };
    check_same(session, &wanted, &created).await?;
    Ok(answer(&created))
}

fn external_id(wanted: &Provision) -> Option<String> {
    wanted.meta.server.as_ref().map(|server| format!("ial/{}", server.as_str()))
}

async fn find(session: &Session, external_id: &str) -> Result<Found, Fault> {
    let id = inst::ExternalId { tenant: session.tenant(), external_id: external_id.to_owned() };
    session.find(Some(inst::get_instance_request::By::ExternalId(id))).await
}

fn decommissioned() -> Fault {
    Fault::new(Code::InvalidState, "the machine was decommissioned")
}

/// Refuses an order that repeats another one with other values, or whose machine was given back.
async fn check_same(
    session: &Session,
    wanted: &Provision,
    instance: &inst::Instance,
) -> Result<(), Fault> {
    session.check_hub(&instance.labels)?;
    if view::is_ending(instance) {
        return Err(decommissioned());
    }
    for (key, stored, sent) in
        [("model_id", MODEL, &wanted.model), ("location_id", LOCATION, &wanted.location)]
    {
        if instance.annotations.get(stored) != Some(sent) {
            return Err(mismatch().at(format!("/request/{key}")));
        }
    }
    session.check_zone(instance, wanted.zone.as_deref()).await
}

/// Answers an order with its instance. The answer follows from the instance alone: each repetition
/// of the order has that of the first one, which may have been lost.
fn answer(instance: &inst::Instance) -> Response {
    success(&Provisioned {
        server_id: instance.id.clone(),
        location_modified: instance.annotations.get(MODIFIED).is_some_and(|text| text == "true"),
        extra: Value::Object(view::extra(instance)),
    })
}

/// Refuses what the location, its zone or the model does not offer.
async fn check_offered(
    session: &Session,
    wanted: &Provision,
    location: &hw::Location,
    model: &hw::Model,
) -> Result<(), Fault> {
    let incompatible =
        |title, key: &str| Fault::new(Code::NotCompatible, title).at(format!("/request/{key}"));
    if let Some(zone) = &wanted.zone
        && !catalogue::zones(location).contains(zone)
    {
        return Err(Fault::new(Code::Location, "unknown zone").at("/request/zone_id"));
    }
    let (model_id, location_id) = (model.id.clone(), location.id.clone());
    let at_location = hw::ListModelOffersRequest { model_id, location_id };
    let offers = provider::offers(session.backend(), at_location).await?;
    let Some(offer) = offers.into_iter().next() else {
        return Err(incompatible("the model is not offered at the location", "model_id"));
    };
    if wanted.zone.as_ref().is_some_and(|zone| !offer.zones.contains(zone)) {
        return Err(incompatible("the model is not offered in the zone", "zone_id"));
    }
    check_features(wanted, model).map_err(|key| {
        incompatible("the model does not have the feature", &format!("model_features/{key}"))
    })?;
    check_options(&wanted.options, &offer).map_err(|key| {
        incompatible("the option is not offered", &format!("provision_options/{key}"))
    })
}

/// Returns the name of a feature that the model does not have.
fn check_features(wanted: &Provision, model: &hw::Model) -> Result<(), &'static str> {
    let notes = &model.annotations;
    let raid = wanted.features.raid.as_ref();
    if raid.is_some_and(|raid| notes.get("ial/raid") != Some(raid)) {
        return Err("raid");
    }
    let is_host = notes.get("ial/hypervisor").is_some_and(|text| text == "true");
    if wanted.features.hypervisor == Some(true) && !is_host { Err("hypervisor") } else { Ok(()) }
}

/// Returns the name of an option that machines of the offer do not have.
fn check_options(options: &ProvisionOptions, offer: &hw::ModelOffer) -> Result<(), &'static str> {
    let disks = offer.parts.iter().flat_map(|parts| &parts.disks);
    let size_gb =
        disks.map(|group| u64::from(group.count) * (group.size_bytes / 1_000_000_000)).sum::<u64>();
    if let Some((key, _)) = options.storage.iter().find(|(_, wanted)| *wanted > size_gb) {
        return Err(key);
    }
    if options.encrypt {
        return Err("encrypt_storage");
    }
    if options.reservation.is_some() { Err("reservation_id") } else { Ok(()) }
}

/// Refuses the host name of another live machine of the hub at the location. The same machine may be there by now: this call may have come
/// several times at once.
async fn check_hostname(session: &Session, wanted: &Provision) -> Result<(), Fault> {
    let own = external_id(wanted);
    let request = inst::ListInstancesRequest {
        page_size: 1000,
        labels: [(HUB.to_owned(), session.hub())].into(),
        tenant: session.tenant(),
        name: wanted.hostname.clone(),
        ..Default::default()
    };
    let page = |page_token| inst::ListInstancesRequest { page_token, ..request.clone() };
    let found = runtime::list_all(session.channel::<inst::ListInstancesRequest>(), page).await;
    let found = found.map_err(|error| status::fault(&error, &mismatch()))?;
    let is_same = |it: &inst::Instance| {
        // A server of an earlier version does not know the filter.
        it.hostname == wanted.hostname
            && own.as_ref() != Some(&it.external_id)
            && it.tenant == session.tenant()
            && it.annotations.get(LOCATION) == Some(&wanted.location)
            && !view::is_ending(it)
    };
    if found.iter().any(is_same) { Err(hostname_in_use()) } else { Ok(()) }
}

fn hostname_in_use() -> Fault {
    Fault::new(Code::DuplicateFound, "the host name is in use").at("/request/hostname")
}

/// A checked order.
#[derive(Clone, Copy)]
struct Order<'a> {
    session: &'a Session,
    wanted: &'a Provision,
    location: &'a hw::Location,
    model: &'a hw::Model,
    /// True if the platform has to configure the location again.
    is_modified: bool,
}

impl Order<'_> {
    /// Creates the instance for a machine of the platform, or finds it.
    async fn create(self, external_id: &str) -> Result<inst::Instance, Fault> {
        let refused = match self.try_create(external_id).await {
            Ok(created) => return Ok(created),
            Err(refused) => refused,
        };
        // The same call came at the same time, perhaps by another process. It may have got the last
        // machine.
        if matches!(refused.code(), Grpc::AlreadyExists | Grpc::ResourceExhausted)
            && let Found::Instance(known) = find(self.session, external_id).await?
        {
            return Ok(*known);
        }
        if was_deleted(&refused) {
            return Err(decommissioned());
        }
        // The name is the only other thing of a new instance that another one may have.
        let is_name_used = refused.code() == Grpc::AlreadyExists;
        Err(if is_name_used { hostname_in_use() } else { self.not_created(&refused).await })
    }

    /// Returns the fault of an order that was refused for another reason than its ids and names. If
    /// another order for the host name came at the same time and got the last machine, it is the
    /// name: the platform would repeat this order for as long as no machine is free.
    async fn not_created(self, refused: &Status) -> Fault {
        let is_exhausted = refused.code() == Grpc::ResourceExhausted;
        if is_exhausted && let Err(fault) = check_hostname(self.session, self.wanted).await {
            return fault;
        }
        let not_offered = Fault::new(Code::NotCompatible, "the model is not offered there");
        status::fault(refused, &not_offered)
    }

    /// Creates an instance with the first external id of its host name that no instance ever had. Refuses the name of a live machine.
    async fn create_by_hostname(self) -> Result<inst::Instance, Fault> {
        let name = [&*self.session.hub(), &*self.wanted.location, &*self.wanted.hostname];
        // Neither a hub nor a host name has a line feed.
        let name = digest::digest(&digest::SHA256, name.join("\n").as_bytes());
        let name: String = name.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
        let id_of = |number: u32| format!("ial-hostname/{name}/{number}");
        let (number, latest) = self.first_unused(&id_of).await?;
        if latest.is_some_and(|it| it.hostname == self.wanted.hostname && !view::is_ending(&it)) {
            return Err(hostname_in_use());
        }
        let refused = match self.try_create(&id_of(number)).await {
            Ok(created) => return Ok(created),
            Err(refused) => refused,
        };
        // Another order for the name came at the same time, and may have ended.
        let is_used = refused.code() == Grpc::AlreadyExists || was_deleted(&refused);
        Err(if is_used { hostname_in_use() } else { self.not_created(&refused).await })
    }

    /// Returns the least number whose external id no instance ever had, and the instance of the number before it, if its record is left. Numbers
    /// are used one after the other.
    async fn first_unused(
        self,
        id_of: &impl Fn(u32) -> String,
    ) -> Result<(u32, Option<inst::Instance>), Fault> {
        let (mut low, mut high, mut latest, mut is_bounded) = (0_u32, 0_u32, None, false);
        while !is_bounded || low < high {
            // Doubled until one is unused, then halved.
            let number = if is_bounded { low.midpoint(high) } else { high };
            let found = find(self.session, &id_of(number)).await?;
            if matches!(found, Found::Nothing) {
                (high, is_bounded) = (number, true);
                continue;
            }
            low = number.saturating_add(1);
            high = if is_bounded { high } else { number.saturating_mul(2).saturating_add(1) };
            latest = match found {
                Found::Instance(instance) => Some(*instance),
                Found::Gone | Found::Nothing => None,
            };
        }
        Ok((low, latest))
    }

    /// Creates an instance with an external id, which makes the call idempotent, also after the server has forgotten request ids.
    async fn try_create(self, external_id: &str) -> Result<inst::Instance, Status> {
        let session = self.session;
        let instance = Some(self.instance(external_id));
        let request = inst::CreateInstanceRequest { instance, ..Default::default() };
        let created = session.call(request).await?.instance;
        created.ok_or_else(|| Status::internal("no instance was created"))
    }

    /// Returns the instance that is to be created.
    fn instance(self, external_id: &str) -> inst::Instance {
        let Self { session, wanted, location, model, is_modified } = self;
        let annotations = [
            (LOCATION, Some(wanted.location.clone())),
            (MODEL, Some(wanted.model.clone())),
            (ZONE, wanted.zone.clone()),
            (MODIFIED, Some(is_modified.to_string())),
            (view::EXTRA, Some("{}".to_owned())),
            (
                "ial/provision_options",
                Some(wanted.options.json.clone()).filter(|it| !it.is_empty()),
            ),
            ("ial/model_features", Some(wanted.features.json.clone())),
        ];
        inst::Instance {
            tenant: session.tenant(),
            hostname: wanted.hostname.clone(),
            hostname_scope: format!("ial/{}/{}", session.hub(), wanted.location),
            external_id: external_id.to_owned(),
            os: Some(inst::instance::Os::Platform(self.platform_boot())),
            placement: Some(Box::new(inst::Placement {
                model_id: model.id.clone(),
                location_id: location.id.clone(),
                zone: wanted.zone.clone().unwrap_or_default(),
                ..inst::Placement::default()
            })),
            labels: self.labels(),
            annotations: set(annotations),
            ..inst::Instance::default()
        }
    }

    fn platform_boot(self) -> inst::PlatformBoot {
        let session = self.session;
        inst::PlatformBoot {
            url: session.boot_url(),
            // Groups are a tenant's.
            group: if session.tenant().is_empty() { String::new() } else { session.hub() },
            ..inst::PlatformBoot::default()
        }
    }

    fn labels(self) -> BTreeMap<String, String> {
        let text = |id: &Option<PlatformId>| id.as_ref().map(PlatformId::as_str).map(str::to_owned);
        let meta = &self.wanted.meta;
        set([
            (HUB, Some(self.session.hub())),
            ("ial/server", text(&meta.server)),
            ("ial/model", text(&meta.model)),
            ("ial/location", text(&meta.location)),
        ])
    }
}

fn was_deleted(refused: &Status) -> bool {
    reason(refused).as_deref() == Some("INSTANCE_DELETED")
}

fn set<const N: usize>(texts: [(&str, Option<String>); N]) -> BTreeMap<String, String> {
    texts.into_iter().filter_map(|(key, text)| Some((key.to_owned(), text?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_no_machine_of_the_model_has_are_named() {
        let disk = |size_bytes| hw::DiskGroup { count: 1, size_bytes, ..hw::DiskGroup::default() };
        let disks = vec![disk(500_000_000_000), disk(460_000_000_000)];
        let parts = Some(hw::MachineParts { disks, ..hw::MachineParts::default() });
        let offer = hw::ModelOffer { parts, ..hw::ModelOffer::default() };
        let check = |options: ProvisionOptions| check_options(&options, &offer);
        let storage = |size| ProvisionOptions {
            storage: vec![("storage_size", size)],
            ..ProvisionOptions::default()
        };
        assert_eq!(check(storage(960)), Ok(()));
        assert_eq!(check(storage(961)), Err("storage_size"));
        assert_eq!(
            check(ProvisionOptions { encrypt: true, ..ProvisionOptions::default() }),
            Err("encrypt_storage")
        );
        let reservation = Some("r".into());
        assert_eq!(
            check(ProvisionOptions { reservation, ..ProvisionOptions::default() }),
            Err("reservation_id")
        );
    }
}
