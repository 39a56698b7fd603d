//! The place of a machine: its location, whose record the machine's commit expects unchanged, and its zone.

use nouns::{Served, Viewer};
use store::records::{Change, Index, Kind, Records};
use tinwright::LocationId;
use tinwright::hardware::v1 as pb;
use tinwright::status::Violations;

use crate::error::Error;
use crate::tenant;

/// The index of locations by name.
const NAME_INDEX: &str = "location-name";

/// The kind of location records.
#[derive(Debug)]
pub enum LocationKind {}

impl Kind for LocationKind {
    type Record = pb::Location;
    type Id = LocationId;
    const KIND: &'static str = "location";
    const INDEXES: &'static [&'static str] = &[NAME_INDEX];

    fn indexes(location: &pb::Location) -> Vec<Index> {
        vec![Index::unique(NAME_INDEX, &location.name)]
    }
}

impl Served for LocationKind {
    const NAME_INDEX: &'static str = NAME_INDEX;

    fn show(viewer: &Viewer, location: pb::Location) -> pb::Location {
        if viewer.tenant.is_some() { tenant::location_view(location) } else { location }
    }
}

/// Returns the change by which the location and the zone of `machine` exist when it is committed: it fails if the location changed
/// meanwhile.
pub(crate) async fn to_expect_location(
    records: &Records<LocationKind>,
    machine: &pb::Hardware,
) -> Result<Change, Error> {
    let pb::Hardware { location_id, zone, .. } = machine;
    if location_id.is_empty() {
        return Ok(Change::default());
    }
    let location = records.require(location_id).await?;
    let draining = |text| Error::Precondition {
        reason: "DRAINING",
        subject: format!("location/{location_id}"),
        text,
    };
    if location.draining {
        return Err(draining(format!("location {} is being deleted", location.name)));
    }
    if location.draining_zones.contains(zone) {
        let text = format!("zone {zone} of location {} is being removed", location.name);
        return Err(draining(text));
    }
    if !zone.is_empty() && !location.zones.iter().any(|it| it.name == *zone) {
        let reason = format!("location {} has no zone {zone:?}", location.name);
        return Err(Violations::single("zone", reason).into());
    }
    Ok(records.unchanged(&location))
}
