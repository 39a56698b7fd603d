//! The control plane, as metadata sees it: two watches in, calls home out.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use futures_util::future::OptionFuture;
use runtime::{feed, phone_home};
use tinwright::common::v1::View;
use tinwright::hardware::v1::{
    WatchHardwareRequest, hardware_service_client::HardwareServiceClient,
};
use tinwright::instance::v1::{
    ReportPhoneHomeRequest, WatchInstancesRequest, instance_service_client::InstanceServiceClient,
};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::copies::{self, Copies};
use crate::http::{Call, NotStored, PhoneHome};
use crate::index::Index;
use crate::source::Source;

/// Keeps `index` fed until `stop`; where there are `copies`, these as well, and begins with them.
pub async fn follow(
    index: Arc<Index>,
    hardware: Channel,
    instance: Channel,
    copies: Option<Copies>,
    stop: CancellationToken,
) -> Result<(), store::Error> {
    let source = Mutex::new(Source::new(index));
    if let Some(copies) = &copies {
        copies::restore(copies, &source).await?;
    }
    let view = View::Full.into();
    let told = || source.lock().unwrap_or_else(PoisonError::into_inner);
    let hardware = HardwareServiceClient::new(hardware);
    let hardware = feed::follow(
        "hardware",
        || {
            let (mut client, id) = (hardware.clone(), String::new());
            async move {
                Ok(client.watch_hardware(WatchHardwareRequest { id, view }).await?.into_inner())
            }
        },
        |news| {
            copies.iter().for_each(|copies| copies.hardware.note(&news, SystemTime::now()));
            told().hardware(news);
        },
        stop.clone(),
    );
    let instance = InstanceServiceClient::new(instance);
    let instance = feed::follow(
        "instance",
        || {
            let (mut client, id) = (instance.clone(), String::new());
            async move {
                Ok(client.watch_instances(WatchInstancesRequest { id, view }).await?.into_inner())
            }
        },
        |news| {
            copies.iter().for_each(|copies| copies.instance.note(&news, SystemTime::now()));
            told().instance(news);
        },
        stop.clone(),
    );
    let kept = OptionFuture::from(copies.as_ref().map(|copies| copies.run(stop)));
    tokio::join!(hardware, instance, kept);
    Ok(())
}

/// Hands calls home to the instance service.
#[derive(Clone, Debug)]
pub struct CallsHome(pub Channel);

#[async_trait]
impl PhoneHome for CallsHome {
    async fn report(&self, call: Call) -> Result<(), NotStored> {
        let Call { hardware, instance_id, fields } = call;
        let host_keys = phone_home::host_keys(&fields);
        let hardware_id = hardware.to_string();
        // A machine without an instance goes by its own id; nobody waits for its call.
        let instance_id = if instance_id == hardware_id { String::new() } else { instance_id };
        let call = ReportPhoneHomeRequest { hardware_id, instance_id, host_keys };
        let stored = phone_home::report(self.0.clone(), call).await;
        stored.map_err(|status| NotStored(status.into()))
    }
}
