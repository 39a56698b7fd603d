//! The listings of locations and models, made from one reading of the site's catalogue.
//!
//! What the contract has no field for is read from annotations of locations and models: `docs/ial.md` lists them.

mod model;

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::digest;
use serde_json::{Value, json};
use tinwright::hardware::v1 as hw;

use super::responses::{
    Geographic, Location, LocationFeatures, LocationProvider, Locations, Model, Models,
};

/// The features of a location that this door drives.
const SUPPORTED: [&str; 2] = ["ipv4", "ipv6"];
/// The features of a location that does not name its own.
const DEFAULT_FEATURES: &str = "ipv4,pxe";

/// The site's catalogue.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// All locations.
    pub locations: Vec<hw::Location>,
    /// All models.
    pub models: Vec<hw::Model>,
    /// All offers.
    pub offers: Vec<hw::ModelOffer>,
}

/// The part of the catalogue that a client sees.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// The locations, by name or id; empty for all.
    pub locations: Vec<String>,
    /// True if the client's own boot URL replaces the URLs of locations.
    pub has_boot_url: bool,
}

/// Both listings, and the digest of what they say.
#[derive(Clone, Debug)]
pub struct Listings {
    locations: Vec<Location>,
    models: Vec<Model>,
    snapshot: String,
}

impl Scope {
    /// True if the client may use the location.
    pub fn has(&self, location: &hw::Location) -> bool {
        let named = |it: &String| *it == location.name || *it == location.id;
        self.locations.is_empty() || self.locations.iter().any(named)
    }

    /// True if machines at the location can be provisioned.
    pub fn is_compatible(&self, location: &hw::Location) -> bool {
        !location.draining && (self.has_boot_url || !location.boot_url.is_empty())
    }
}

impl Catalogue {
    /// Returns the listings for `scope`.
    pub fn listings(&self, scope: &Scope) -> Listings {
        let mut seen: Vec<_> = self.locations.iter().filter(|it| scope.has(it)).collect();
        seen.sort_by(|one, other| one.name.cmp(&other.name));
        let locations: Vec<_> = seen.iter().map(|it| location(it, scope)).collect();
        let mut models: Vec<_> = self.models.iter().collect();
        models.sort_by(|one, other| one.name.cmp(&other.name));
        let models: Vec<_> =
            models.into_iter().map(|it| model::model(it, &self.offers, &seen, scope)).collect();
        let snapshot = snapshot(&json!([locations, models]));
        Listings { locations, models, snapshot }
    }
}

impl Listings {
    /// Returns the listing of locations.
    pub fn into_locations(self) -> Locations {
        Locations { locations: self.locations, extra: json!({"snapshot": self.snapshot}) }
    }

    /// Returns the listing of models.
    pub fn into_models(self) -> Models {
        Models { models: self.models, extra: json!({"snapshot": self.snapshot}) }
    }
}

/// Returns the names of the zones to which machines are brought.
pub fn zones(location: &hw::Location) -> Vec<String> {
    let names: BTreeSet<_> = location.zones.iter().map(|zone| zone.name.clone()).collect();
    names.into_iter().filter(|name| !location.draining_zones.contains(name)).collect()
}

fn location(location: &hw::Location, scope: &Scope) -> Location {
    let notes = &location.annotations;
    let available = words(notes.get("ial/features").map_or(DEFAULT_FEATURES, |it| it));
    let is_supported = |feature: &&String| SUPPORTED.contains(&feature.as_str());
    let supported = available.iter().filter(is_supported).cloned().collect();
    Location {
        name: note(notes, "ial/name").unwrap_or_else(|| location.name.clone()),
        geographic: location.geography.as_ref().map(geographic),
        provider: LocationProvider {
            location_id: location.name.clone(),
            code: note(notes, "ial/code").unwrap_or_else(|| location.name.clone()),
            availability_zones: zones(location),
        },
        features: LocationFeatures { available, supported },
        abbreviation: note(notes, "ial/abbreviation").unwrap_or_default(),
        annotations: below(notes, "ial/notes/"),
        compatible: scope.is_compatible(location),
    }
}

fn geographic(position: &hw::Geography) -> Geographic {
    let hw::Geography { country, state, city, region, latitude, longitude } = position.clone();
    Geographic { latitude, longitude, city, state, country, region }
}

fn note(notes: &BTreeMap<String, String>, key: &str) -> Option<String> {
    notes.get(key).filter(|text| !text.is_empty()).cloned()
}

/// Returns the annotations whose keys begin with `prefix`, by the rest of their keys.
fn below(notes: &BTreeMap<String, String>, prefix: &str) -> BTreeMap<String, String> {
    let rest = |(key, text): (&String, &String)| {
        key.strip_prefix(prefix).map(|key| (key.to_owned(), text.clone()))
    };
    notes.iter().filter_map(rest).collect()
}

/// Returns the parts of a list that is separated by commas.
fn words(text: &str) -> Vec<String> {
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(str::to_owned).collect()
}

fn snapshot(listings: &Value) -> String {
    let digest = digest::digest(&digest::SHA256, listings.to_string().as_bytes());
    digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests;
