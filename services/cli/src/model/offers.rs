//! The models of which machines stand in locations.

use tinwright::hardware::v1 as pb;

use crate::connect::Io;
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
    io: &mut Io<'_>,
) -> anyhow::Result<()> {
    let request = pb::ListModelOffersRequest {
        model_id: pb::Model::find_optional_id(io.channel, model.as_deref()).await?,
        location_id: pb::Location::find_optional_id(io.channel, location.as_deref()).await?,
    };
    let offers = io.call(request).await?.offers;
    let empty = "no offer: a model is offered in each location where machines of it stand";
    let list = List::new(&offers, |offer| &offer.model_name, empty);
    list.print_rows(&output.into(), io.out).await
}

impl Row for pb::ModelOffer {
    const COLUMNS: &'static str = "MODEL:model_name,LOCATION:location_name,ZONES:zones,\
        AVAILABLE:available,FREE,MACHINES,CORES,MEMORY";

    fn cell(&self, column: &str) -> String {
        let parts = self.parts.clone().unwrap_or_default();
        let (number, unit) = match column {
            // A caller with a tenant does not see these two.
            "FREE" => (self.free, ""),
            "MACHINES" => (self.machines, ""),
            "CORES" => (parts.processors.map_or(0, |it| it.cores.into()), ""),
            _ => (parts.memory_bytes >> 30, " GiB"),
        };
        if number == 0 { String::new() } else { format!("{number}{unit}") }
    }
}
