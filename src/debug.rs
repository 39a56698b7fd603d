//! What logs show of messages that hold secrets: what they name, and nothing they keep.

use std::fmt;

use crate::hegel::{GetResponse, SubscribeResponse};
use crate::instance::v1::Instance;
use crate::power::v1::Bmc;
use crate::workflow::v1::RedeemRequest;

impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instance")
            .field("id", &self.id)
            .field("state", &self.state)
            .field("hardware_id", &self.hardware_id)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Bmc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bmc")
            .field("id", &self.id)
            .field("hardware_id", &self.hardware_id)
            .field("redfish_url", &self.redfish_url)
            .field("revision", &self.revision)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for RedeemRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedeemRequest").field("holder", &self.holder).finish_non_exhaustive()
    }
}

// What machines are told holds user data.
impl fmt::Debug for GetResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetResponse").finish_non_exhaustive()
    }
}

impl fmt::Debug for SubscribeResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscribeResponse").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown() {
        let secret = || "hunter2".to_owned();
        let instance =
            Instance { userdata: secret(), crypted_root_password: secret(), ..Default::default() };
        let bmc = Bmc { password: secret(), ..Default::default() };
        let redeem = RedeemRequest { boot_token: secret(), ..Default::default() };
        let (get, subscribe) =
            (GetResponse { json: secret() }, SubscribeResponse { json: secret() });
        let shown = format!("{instance:?} {bmc:?} {redeem:?} {get:?} {subscribe:?}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
