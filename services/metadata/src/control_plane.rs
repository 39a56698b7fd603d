//! The control plane, as metadata sees it: watches in, calls home out.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
use tinwright::netboot::v1::{WatchLeasesRequest, lease_service_client::LeaseServiceClient};
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::copies::{self, Copies};
use crate::http::{Call, NotStored, PhoneHome};
use crate::index::Index;
use crate::source::Source;

/// Whom it is told by.
#[derive(Clone, Debug)]
pub struct Sources {
    /// Of machines.
    pub hardware: Channel,
    /// Of what occupies them.
    pub instance: Channel,
    /// Of addresses that are lent; none where nobody lends any.
    pub leases: Option<Channel>,
}

/// Keeps `index` fed by `sources` until `stop`; where there are `copies`, these as well, and begins with them.
pub async fn follow(
    index: Arc<Index>,
    sources: Sources,
    copies: Option<Copies>,
    stop: CancellationToken,
) -> Result<(), store::Error> {
    let Sources { hardware, instance, leases } = sources;
    if leases.is_some() {
        index.expect_leases();
    }
    let told = Told { source: Mutex::new(Source::new(index)), copies };
    if let Some(copies) = &told.copies {
        copies::restore(copies, &told.source).await?;
        if leases.is_some() {
            copies::restore_leases(copies, &told.source).await?;
        }
    }
    let leases = leases.map(|leases| Box::pin(told.leases(leases, stop.clone())));
    let kept = told.copies.as_ref().map(|copies| copies.run(stop.clone()));
    tokio::join!(
        Box::pin(told.hardware(hardware, stop.clone())),
        Box::pin(told.instances(instance, stop)),
        OptionFuture::from(leases),
        OptionFuture::from(kept),
    );
    Ok(())
}

/// Who takes what the watches bring.
struct Told {
    source: Mutex<Source>,
    copies: Option<Copies>,
}

impl Told {
    fn source(&self) -> MutexGuard<'_, Source> {
        self.source.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn hardware(&self, channel: Channel, stop: CancellationToken) {
        let client = HardwareServiceClient::new(channel);
        let open = || {
            let (mut client, view) = (client.clone(), View::Full.into());
            let request = WatchHardwareRequest { id: String::new(), view };
            async move { Ok(client.watch_hardware(request).await?.into_inner()) }
        };
        let tell = |news| {
            self.copies.iter().for_each(|copies| copies.hardware.record(&news, SystemTime::now()));
            self.source().hardware(news);
        };
        feed::follow("hardware", open, tell, stop).await;
    }

    async fn instances(&self, channel: Channel, stop: CancellationToken) {
        let client = InstanceServiceClient::new(channel);
        let open = || {
            let (mut client, view) = (client.clone(), View::Full.into());
            let request = WatchInstancesRequest { id: String::new(), view };
            async move { Ok(client.watch_instances(request).await?.into_inner()) }
        };
        let tell = |news| {
            self.copies.iter().for_each(|copies| copies.instance.record(&news, SystemTime::now()));
            self.source().instance(news);
        };
        feed::follow("instance", open, tell, stop).await;
    }

    async fn leases(&self, channel: Channel, stop: CancellationToken) {
        let client = LeaseServiceClient::new(channel);
        let open = || {
            let mut client = client.clone();
            async move { Ok(client.watch_leases(WatchLeasesRequest::default()).await?.into_inner()) }
        };
        let tell = |news| {
            self.copies.iter().for_each(|copies| copies.lease.record(&news, SystemTime::now()));
            self.source().lease(news);
        };
        feed::follow("lease", open, tell, stop).await;
    }
}

/// Hands calls home to the instance service.
#[derive(Clone, Debug)]
pub struct CallsHome(pub Channel);

#[async_trait]
impl PhoneHome for CallsHome {
    async fn report(&self, call: Call) -> Result<(), NotStored> {
        let Call { hardware, instance_id, fields } = call;
        let (host_keys, kind) = (phone_home::host_keys(&fields), phone_home::event_type(&fields));
        let hardware_id = hardware.to_string();
        // A machine without an instance goes by its own id; nobody waits for its call.
        let instance_id = if instance_id == hardware_id { String::new() } else { instance_id };
        let call = ReportPhoneHomeRequest { hardware_id, instance_id, host_keys, kind };
        let stored = phone_home::report(self.0.clone(), call).await;
        stored.map_err(|status| NotStored(status.into()))
    }
}
