//! The models of which machines stand in locations.

use std::io::Write;
use std::time::SystemTime;

use runtime::Channel;
use tinwright::hardware::v1 as pb;

use crate::connect::call;
use crate::output::{Format, List, Row};
use crate::resource::Resource as _;

/// Options of the list.
#[derive(Debug, clap::Args)]
pub struct OffersOptions {
    /// List only offers of this model
    #[arg(long, value_name = "NAME|ID")]
    model: Option<String>,
    /// List only offers in this location
    #[arg(long, value_name = "NAME|ID")]
    location: Option<String>,
    /// Print in this format
    #[arg(short, long, default_value = "table")]
    output: Format,
}

/// Prints the offers.
pub(super) async fn list(
    OffersOptions { model, location, output }: OffersOptions,
    channel: &Channel,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let request = pb::ListModelOffersRequest {
        model_id: pb::Model::find_optional_id(channel, model.as_deref()).await?,
        location_id: pb::Location::find_optional_id(channel, location.as_deref()).await?,
    };
    let offers = call(channel, request).await?.offers;
    let empty = "no offer: a model is offered in each location where machines of it stand";
    let list = List::new(&offers, |offer| &offer.model_name, empty);
    list.print_rows(&output.into(), out).await
}

impl Row for pb::ModelOffer {
    const COLUMNS: &'static [&'static str] =
        &["MODEL", "LOCATION", "ZONES", "AVAILABLE", "FREE", "MACHINES", "CORES", "MEMORY"];

    fn row(&self, _: SystemTime) -> Vec<String> {
        let parts = self.parts.clone().unwrap_or_default();
        let cores = parts.processors.map_or(0, |processors| processors.cores);
        let unless_zero = |number: u64, unit: &str| match number {
            0 => String::new(),
            number => format!("{number}{unit}"),
        };
        vec![
            self.model_name.clone(),
            self.location_name.clone(),
            self.zones.join(","),
            if self.available { "yes" } else { "no" }.into(),
            // A caller with a tenant does not see them.
            unless_zero(self.free, ""),
            unless_zero(self.machines, ""),
            unless_zero(cores.into(), ""),
            unless_zero(parts.memory_bytes >> 30, " GiB"),
        ]
    }
}
