//! Sends reports to the control plane.

use async_trait::async_trait;
use runtime::Channel;
use runtime::phone_home;
use tinwright::instance::v1::ReportPhoneHomeRequest;

use crate::http::{NotStored, PhoneHome, PhoneHomeCall};

/// Sends phone-home calls to the instance service.
#[derive(Clone, Debug)]
pub struct InstanceReports(pub Channel);

#[async_trait]
impl PhoneHome for InstanceReports {
    async fn report(&self, call: PhoneHomeCall) -> Result<(), NotStored> {
        let PhoneHomeCall { hardware, instance_id, fields } = call;
        let (host_keys, kind) = (phone_home::host_keys(&fields), phone_home::event_type(&fields));
        let hardware_id = hardware.to_string();
        // The metadata of a machine without an instance has the hardware id as instance id. The report has none then.
        let instance_id = if instance_id == hardware_id { String::new() } else { instance_id };
        let call = ReportPhoneHomeRequest { hardware_id, instance_id, host_keys, kind };
        let stored = phone_home::report(self.0.clone(), call).await;
        stored.map_err(|status| NotStored(status.into()))
    }
}
