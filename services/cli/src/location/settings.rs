//! The options that describe a location, and what they change.

use std::path::PathBuf;

use tinwright::hardware::v1 as pb;

use crate::input;
use crate::output::Format;
use crate::resource::{FileOptions, Resource as _};

/// Options of a creation.
#[derive(Debug, clap::Args)]
pub struct CreateLocation {
    /// Its name: letters, digits and inner hyphens, at most 63
    #[arg(required_unless_present = "files")]
    name: Option<String>,
    /// Read one or more locations from this YAML or JSON file; - for standard input
    #[arg(short, long = "file", value_name = "FILE", conflicts_with = "name")]
    files: Vec<PathBuf>,
    /// Give it this zone; may be repeated
    #[arg(long = "zone", value_name = "NAME[=DESCRIPTION]", value_parser = zone)]
    #[arg(requires = "name")]
    zones: Vec<pb::Zone>,
    /// Its settings
    #[command(flatten)]
    settings: Settings,
    /// Give it this label; may be repeated
    #[arg(short, long = "label", value_name = "KEY=VALUE", value_parser = input::pair)]
    #[arg(requires = "name")]
    labels: Vec<(String, String)>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Options of an update.
#[derive(Debug, clap::Args)]
pub struct UpdateLocation {
    /// The location
    #[arg(value_name = pb::Location::NAMES)]
    pub(super) name: String,
    /// Rename it
    #[arg(long = "rename", value_name = "NAME")]
    new_name: Option<String>,
    /// Add this zone, or change its description; may be repeated
    #[arg(long = "zone", value_name = "NAME[=DESCRIPTION]", value_parser = zone)]
    zones: Vec<pb::Zone>,
    /// Remove this zone, in which no machine is; may be repeated
    #[arg(long = "remove-zone", value_name = "NAME")]
    removed_zones: Vec<String>,
    /// Its settings
    #[command(flatten)]
    settings: Settings,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    pub(super) output: Format,
}

/// Settings of a location.
#[derive(Debug, clap::Args)]
struct Settings {
    /// Have machines there load the system of an outside platform from here: an http or https URL, or a path that begins with /platform/
    #[arg(long, value_name = "URL", requires = "name")]
    boot_url: Option<String>,
    /// Set its country, by the two letters of ISO 3166-1
    #[arg(long, value_name = "CODE", requires = "name")]
    country: Option<String>,
    /// Set its state or province
    #[arg(long, value_name = "NAME", requires = "name")]
    state: Option<String>,
    /// Set its city
    #[arg(long, value_name = "NAME", requires = "name")]
    city: Option<String>,
    /// Set the group of locations that it belongs to, such as eu-north
    #[arg(long, value_name = "NAME", requires = "name")]
    region: Option<String>,
    /// Set its position in decimal degrees, such as 67.86,20.23
    #[arg(long, value_name = "LATITUDE,LONGITUDE", value_parser = position, requires = "name")]
    #[arg(allow_hyphen_values = true)]
    position: Option<(f64, f64)>,
}

impl CreateLocation {
    /// Returns the files, and the location that the options describe; none if it is in the files.
    pub(super) fn split(self) -> (FileOptions, Option<pb::Location>) {
        let Self { name, files, zones, settings, labels, output } = self;
        let location = name.map(|name| {
            let labels = labels.into_iter().collect();
            let mut location = pb::Location { name, zones, labels, ..pb::Location::default() };
            settings.write(&mut location);
            location
        });
        (FileOptions { files, output }, location)
    }
}

impl UpdateLocation {
    /// Writes what is given into `location`, and returns it with the names of the changed fields. With zones it is changed at its
    /// revision only: its other zones are those that were read.
    pub(super) fn write(
        self,
        mut location: pb::Location,
    ) -> anyhow::Result<(pb::Location, Vec<String>)> {
        let Self { name: _, new_name, zones, removed_zones, settings, output: _ } = self;
        let mut paths = settings.write(&mut location);
        if zones.is_empty() && removed_zones.is_empty() {
            location.revision = 0;
        } else {
            paths.push("zones".into());
        }
        for removed in removed_zones {
            let before = location.zones.len();
            location.zones.retain(|zone| !zone.name.eq_ignore_ascii_case(&removed));
            let is_removed = location.zones.len() < before;
            anyhow::ensure!(is_removed, "location {} has no zone {removed:?}", location.name);
        }
        for zone in zones {
            let stored =
                location.zones.iter_mut().find(|it| it.name.eq_ignore_ascii_case(&zone.name));
            match stored {
                Some(stored) => stored.description = zone.description,
                None => location.zones.push(zone),
            }
        }
        if let Some(name) = new_name {
            location.name = name;
            paths.push("name".into());
        }
        Ok((location, paths))
    }
}

impl Settings {
    /// Writes the settings that are given into `location`. Returns the names of their fields.
    fn write(self, location: &mut pb::Location) -> Vec<String> {
        let Self { boot_url, country, state, city, region, position } = self;
        let mut paths = Vec::new();
        if let Some(url) = boot_url {
            location.boot_url = url;
            paths.push("boot_url".into());
        }
        let mut geography = location.geography.clone().unwrap_or_default();
        for (value, field) in [
            (country, &mut geography.country),
            (state, &mut geography.state),
            (city, &mut geography.city),
            (region, &mut geography.region),
        ] {
            value.into_iter().for_each(|value| *field = value);
        }
        if let Some((latitude, longitude)) = position {
            (geography.latitude, geography.longitude) = (latitude, longitude);
        }
        if location.geography.as_ref().is_none_or(|stored| *stored != geography)
            && geography != pb::Geography::default()
        {
            location.geography = Some(geography);
            paths.push("geography".into());
        }
        paths
    }
}

/// Parses a zone: its name, and a description after an equals sign.
fn zone(text: &str) -> Result<pb::Zone, String> {
    let (name, description) = text.split_once('=').unwrap_or((text, ""));
    Ok(pb::Zone { name: name.into(), description: description.into() })
}

/// Parses a position of two decimal numbers.
fn position(text: &str) -> Result<(f64, f64), String> {
    let wrong = || format!("{text:?} is not a position such as 67.86,20.23");
    let (latitude, longitude) = text.split_once(',').ok_or_else(wrong)?;
    let degrees = |text: &str| text.trim().parse::<f64>().map_err(|_| wrong());
    Ok((degrees(latitude)?, degrees(longitude)?))
}
