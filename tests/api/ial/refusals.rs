//! Everything that has to be refused, by the numbers of the platform's table (R22 is netboot's).
//!
//! - `requests`: what is wrong whatever there is, R1 to R12 and R23. `objects`: what contradicts the site, R13 to R21.

mod objects;
mod requests;

use serde_json::Value;

use super::leaks::VALUES;
use super::platform::{Call, golden};
use super::site::IalSite;

/// An id that nothing has.
const NOBODY: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
/// A wrong value of a credential.
const GUESS: &str = VALUES[6];

/// Returns a good request, but for one key, which a pointer into the request names.
fn changed(mut request: Value, pointer: &str, value: Option<Value>) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    let parent = request.pointer_mut(parent).unwrap().as_object_mut().unwrap();
    match value {
        Some(value) => parent.insert(key.to_owned(), value),
        None => parent.remove(key),
    };
    request
}

fn good(call: Call) -> Value {
    golden(call, 1, NOBODY, "kir1")
}

#[tokio::test]
async fn every_request_that_has_to_be_refused_is_refused_as_the_table_says() {
    let site = IalSite::start().await;
    requests::unreadable(&site.acme).await;
    requests::too_large(&site).await;
    requests::paths(&site.acme).await;
    requests::credentials(&site.acme).await;
    requests::missing(&site.acme).await;
    requests::wrong_types(&site.acme).await;
    requests::unusable(&site.acme).await;
    objects::unknown(&site.acme).await;
    let server =
        site.provisioned(&changed(good(Call::Provision), "/zone_id", Some("kir1-a".into()))).await;
    objects::foreign(&site, &server).await;
    objects::mismatched(&site.acme, &server).await;
    objects::configurations(&site, &server).await;
    objects::not_offered(&site.acme).await;
    objects::building_or_failed(&site).await;
    objects::host_names(&site).await;
    objects::in_use(&site, &server).await;
    objects::limits(&site).await;
    site.end().await;
}

#[tokio::test]
async fn an_order_has_the_zone_of_its_machine_and_a_host_name_of_its_own() {
    let site = IalSite::start().await;
    objects::zones(&site).await;
    objects::host_names_at_once(&site).await;
    site.end().await;
}
