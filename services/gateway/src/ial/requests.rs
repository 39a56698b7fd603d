//! The documents of the calls, decoded from the wrapper. Keys that are not known are ignored; an absent optional key is null.

use std::net::IpAddr;

use ipnet::IpNet;
use tinwright::address::v1::AddressFamily;
use tinwright::check;

use super::fault::{Code, Fault};
use super::object::Object;
use super::wrapper::PlatformId;

/// The longest identifier of ours, in bytes.
const MAX_ID_BYTES: usize = 128;
/// The longest JSON text that is stored with a machine for one key of a request.
const MAX_OPEN_BYTES: usize = 4096;

/// What the platform says of its own machine. It is stored, and not believed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerMeta {
    /// The platform's machine: the key of idempotency.
    pub server: Option<PlatformId>,
    /// The platform's model.
    pub model: Option<PlatformId>,
    /// The platform's location.
    pub location: Option<PlatformId>,
}

/// What the platform says of the pool of an address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IpMeta {
    /// The platform's pool: the key of idempotency.
    pub pool: Option<PlatformId>,
    /// The platform's machine.
    pub server: Option<PlatformId>,
}

/// The number of a configuration's format.
pub const FORMAT: u64 = 1;

/// A configuration that this door returned, as the platform sends it back. Nothing in it is believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentConfiguration {
    /// The number of its format.
    pub format: Option<u64>,
    /// The tenant for which it was made.
    pub tenant: Option<String>,
    /// The location for which it was made.
    pub location: Option<String>,
    /// The id of the binding that it shows.
    pub binding: Option<String>,
    /// The version of the binding that it shows.
    pub version: Option<String>,
}

/// `location/configure`
#[derive(Clone, Debug)]
pub struct Configure {
    /// The name of the location.
    pub location: String,
}

/// Features of a model, as the platform believes them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// The arrangement of disks.
    pub raid: Option<String>,
    /// Virtual machines.
    pub hypervisor: Option<bool>,
    /// The whole object, as it was sent.
    pub json: String,
}

/// The known options of a provision, and all of them as they were sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProvisionOptions {
    /// The wanted storage in GB, with the key that wants it.
    pub storage: Vec<(&'static str, u64)>,
    /// Encryption of the storage.
    pub encrypt: bool,
    /// A machine that is kept.
    pub reservation: Option<String>,
    /// The whole object, as it was sent; empty if there is none.
    pub json: String,
}

/// `server/provision`
#[derive(Clone, Debug)]
pub struct Provision {
    /// The host name, in lower case.
    pub hostname: String,
    /// The name of the model.
    pub model: String,
    /// The name of the location.
    pub location: String,
    /// The name of the zone; none for any.
    pub zone: Option<String>,
    /// Features.
    pub features: Features,
    /// ProvisionOptions.
    pub options: ProvisionOptions,
    /// The configuration that the platform has.
    pub configuration: Option<SentConfiguration>,
    /// The platform's identifiers.
    pub meta: ServerMeta,
}

/// A machine that a request names, with what must agree with the stored one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The id of the server.
    pub server: String,
    /// The name of the location.
    pub location: String,
    /// The name of the model, in calls that send it.
    pub model: Option<String>,
    /// The name of the zone, if it was sent.
    pub zone: Option<String>,
}

/// `ip/allocate`
#[derive(Clone, Debug)]
pub struct Allocate {
    /// The machine.
    pub named: Named,
    /// The family.
    pub family: AddressFamily,
    /// The configuration that the platform has.
    pub configuration: Option<SentConfiguration>,
    /// The platform's identifiers.
    pub meta: IpMeta,
}

/// `ip/release`
#[derive(Clone, Debug)]
pub struct Release {
    /// The machine.
    pub named: Named,
    /// The family.
    pub family: AddressFamily,
    /// The id of the address.
    pub ip: String,
    /// The id of its assignment.
    pub assignment: String,
    /// The block.
    pub cidr: IpNet,
    /// The configuration that the platform has.
    pub configuration: Option<SentConfiguration>,
}

impl Configure {
    /// Reads the document.
    pub fn read(request: &Object<'_>) -> Result<Self, Fault> {
        let location = our_id(request, "location_id")?;
        request.text("version")?.ok_or_else(|| request.missing("version"))?;
        // It is only compared with the one in force, which is returned in any case.
        request.open_object("configuration_current")?;
        if let Some(cycle) = request.object("cycle")? {
            PlatformId::read(&cycle, "location_id")?;
        }
        Ok(Self { location })
    }
}

impl Provision {
    /// Reads the document.
    pub fn read(request: &Object<'_>) -> Result<Self, Fault> {
        let hostname = request.required_text("hostname")?;
        let hostname = check::hostname(&hostname).map_err(|error| {
            request.invalid("hostname", "not a host name").with_detail(error.to_string())
        })?;
        Ok(Self {
            hostname,
            model: our_id(request, "model_id")?,
            location: our_id(request, "location_id")?,
            zone: optional_id(request, "zone_id")?,
            features: features(request)?,
            options: options(request)?,
            configuration: configuration(request, "location_configuration")?,
            meta: server_meta(request)?,
        })
    }
}

impl Named {
    /// Reads the document of `server/provision-status`, and the configuration in it.
    pub fn read_status(request: &Object<'_>) -> Result<(Self, Option<SentConfiguration>), Fault> {
        let named = Self::read(request)?;
        request.object("model_features")?;
        request.open_object("provision_options")?;
        let sent = configuration(request, "location_configuration")?;
        request.open_object("extra")?;
        server_meta(request)?;
        Ok((named, sent))
    }

    /// Reads the document of `server/restart` and of `server/decommission`.
    pub fn read_change(request: &Object<'_>) -> Result<Self, Fault> {
        let named = Self::read(request)?;
        request.required_text("hostname")?;
        let model = Some(our_id(request, "model_id")?);
        request.open_object("extra")?;
        server_meta(request)?;
        Ok(Self { model, ..named })
    }

    fn read(request: &Object<'_>) -> Result<Self, Fault> {
        Ok(Self {
            server: our_id(request, "server_id")?,
            location: our_id(request, "location_id")?,
            model: None,
            zone: optional_id(request, "zone_id")?,
        })
    }
}

impl Allocate {
    /// Reads the document.
    pub fn read(request: &Object<'_>) -> Result<Self, Fault> {
        Ok(Self {
            family: family(request)?,
            named: Named::read(request)?,
            configuration: configuration(request, "location_configuration")?,
            meta: ip_meta(request)?,
        })
    }
}

impl Release {
    /// Reads the document.
    pub fn read(request: &Object<'_>) -> Result<Self, Fault> {
        let family = family(request)?;
        let ip = our_id(request, "ip_id")?;
        let assignment = our_id(request, "ip_assignment_id")?;
        let cidr = request.required_text("cidr")?.parse();
        let cidr =
            cidr.map_err(|_| request.invalid("cidr", "not an address with prefix length"))?;
        if let Some(nat) = request.text("nat_private_ip")?.filter(|text| !text.is_empty()) {
            let parsed: Result<IpAddr, _> = nat.parse();
            parsed.map_err(|_| request.invalid("nat_private_ip", "not an address"))?;
        }
        let named = Named::read(request)?;
        let configuration = configuration(request, "location_configuration")?;
        ip_meta(request)?;
        Ok(Self { named, family, ip, assignment, cidr, configuration })
    }
}

/// Reads an identifier of ours. One with other characters is unknown, like any that was never given out.
fn our_id(request: &Object<'_>, name: &str) -> Result<String, Fault> {
    let id = request.required_text(name)?;
    if id.len() > MAX_ID_BYTES {
        return Err(request.invalid(name, "the identifier is too long"));
    }
    Ok(id)
}

fn optional_id(request: &Object<'_>, name: &str) -> Result<Option<String>, Fault> {
    Ok(request.text(name)?.filter(|id| !id.is_empty()))
}

fn family(request: &Object<'_>) -> Result<AddressFamily, Fault> {
    match request.required_text("kind")?.as_str() {
        "ipv4" => Ok(AddressFamily::Ipv4),
        "ipv6" => Ok(AddressFamily::Ipv6),
        _ => Err(request.invalid("kind", "neither ipv4 nor ipv6")),
    }
}

fn features(request: &Object<'_>) -> Result<Features, Fault> {
    let features = request.required_object("model_features")?;
    features.open_object("extra")?;
    Ok(Features {
        raid: features.text("raid")?.filter(|raid| !raid.is_empty()),
        hypervisor: features.boolean("hypervisor")?,
        json: stored(request, "model_features")?,
    })
}

fn options(request: &Object<'_>) -> Result<ProvisionOptions, Fault> {
    let Some(options) = request.object("provision_options")? else {
        return Ok(ProvisionOptions::default());
    };
    let mut storage = Vec::new();
    for key in ["attached_storage_size", "storage_size"] {
        storage.extend(options.integer(key)?.map(|size| (key, size)));
    }
    Ok(ProvisionOptions {
        storage,
        encrypt: options.boolean("encrypt_storage")?.unwrap_or_default(),
        reservation: options.text("reservation_id")?.filter(|id| !id.is_empty()),
        json: stored(request, "provision_options")?,
    })
}

/// Returns the text of an open object, which is stored with the machine.
fn stored(request: &Object<'_>, name: &str) -> Result<String, Fault> {
    let json = request.open_object(name)?.map_or("", |raw| raw.get());
    if json.len() > MAX_OPEN_BYTES {
        let fault = Fault::new(Code::MaxExceeded, "the object has more than 4096 bytes");
        return Err(fault.at(request.pointer(name)));
    }
    Ok(json.to_owned())
}

/// Reads a configuration of ours that the platform sends back. One of another format is refused.
fn configuration(request: &Object<'_>, name: &str) -> Result<Option<SentConfiguration>, Fault> {
    let Some(sent) = request.object(name)? else { return Ok(None) };
    let wrong = |place: &str| sent.invalid(place, "not a configuration of this integration");
    let format = sent.integer("format").map_err(|_| wrong("format"))?;
    if format != Some(FORMAT) {
        return Err(wrong("format"));
    }
    let text = |name: &str| sent.text(name).map_err(|_| wrong(name));
    let (tenant, location) = (text("tenant")?, text("location")?);
    let (binding, version) = (text("binding")?, text("version")?);
    Ok(Some(SentConfiguration { format, tenant, location, binding, version }))
}

fn server_meta(request: &Object<'_>) -> Result<ServerMeta, Fault> {
    let Some(cycle) = request.object("cycle")? else { return Ok(ServerMeta::default()) };
    cycle.text("model_class")?;
    cycle.text("model_category")?;
    Ok(ServerMeta {
        server: PlatformId::read(&cycle, "server_id")?,
        model: PlatformId::read(&cycle, "model_id")?,
        location: PlatformId::read(&cycle, "location_id")?,
    })
}

fn ip_meta(request: &Object<'_>) -> Result<IpMeta, Fault> {
    let Some(cycle) = request.object("cycle")? else { return Ok(IpMeta::default()) };
    cycle.text("server_model_class")?;
    cycle.text("server_model_category")?;
    PlatformId::read(&cycle, "location_id")?;
    Ok(IpMeta {
        pool: PlatformId::read(&cycle, "pool_id")?,
        server: PlatformId::read(&cycle, "server_id")?,
    })
}

#[cfg(test)]
mod tests;
