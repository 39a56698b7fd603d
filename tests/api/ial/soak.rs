//! A month and a year of the platform's listings, by a clock that the test moves.

use std::net::Ipv4Addr;
use std::time::{Duration, SystemTime};

use gateway::{Backend, Gateway, ial};
use runtime::revocation::Revocations;
use runtime::serve::{self, Transport};
use runtime::{Caller, Clock, Role};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::platform::{Call, Platform};
use super::site::IalSite;
use crate::access::content::{ContentReader, changed_keys};

/// The time between two synchronizations.
const INTERVAL: Duration = Duration::from_secs(6 * 60 * 60);
const SYNCHRONIZATIONS_PER_DAY: usize = 4;

/// A gateway of its own in front of the site's services.
struct ClockedGateway {
    clock: Clock,
    base: String,
    _stop: DropGuard,
}

impl ClockedGateway {
    async fn start(site: &IalSite) -> Self {
        let door = Caller::new(Role::Door, "service:gateway").unwrap();
        let channel = site.server.channel_of(Some(door)).await;
        let backend = Backend::at_one(channel);
        let (clock, stop) = (Clock::manual(SystemTime::now()), CancellationToken::new());
        let settings = gateway::GatewaySettings {
            clock: clock.clone(),
            ..gateway::GatewaySettings::default()
        };
        let revocations = Revocations::default();
        let gateway = Gateway::new(backend, revocations, settings, &mut Default::default());
        let settings = ial::IalSettings {
            is_catalogue_public: true,
            has_rate_limits: true,
            clock: clock.clone(),
        };
        let app = gateway.router(ial::doors(&gateway, settings), Default::default());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(serve::tcp(listener, Transport::AnonymousPlaintext, app, stop.clone()));
        Self { clock, base, _stop: stop.drop_guard() }
    }
}

/// Returns both listings, as they were sent.
async fn listings(platform: &Platform) -> [String; 2] {
    let locations = platform.call(Call::Locations, &Value::Null).await;
    let models = platform.call(Call::Models, &Value::Null).await;
    assert_eq!((locations.status, models.status), (200, 200), "{} {}", locations.body, models.body);
    [locations.body, models.body]
}

#[tokio::test]
async fn the_listings_of_a_month_are_the_same_and_nothing_is_stored_by_them() {
    synchronize(30).await;
}

#[tokio::test]
#[ignore = "minutes: a year"]
async fn the_listings_of_a_year_are_the_same_and_nothing_is_stored_by_them() {
    synchronize(365).await;
}

/// Compares the listings of so many days, and what is stored before and after them.
async fn synchronize(days: usize) {
    let site = IalSite::start().await;
    let gateway = ClockedGateway::start(&site).await;
    let platform = site.acme.at(gateway.base.clone()).hurried();
    let everybody = platform.with_auth(Value::Null);
    let mut content = ContentReader::new(&site.server).await;
    let first = listings(&platform).await;
    assert_eq!(listings(&site.acme).await, first, "by the site's own gateway");
    let before = content.read().await;
    for n in 0..days * SYNCHRONIZATIONS_PER_DAY {
        gateway.clock.advance(INTERVAL);
        assert_eq!(listings(&platform).await, first, "synchronization {n}");
        assert_eq!(listings(&everybody).await, first, "synchronization {n}, without credentials");
    }
    let after = content.read().await;
    assert_eq!(changed_keys(&before, &after), [""; 0]);
    assert!(before.len() > 50, "{}", before.len());
    site.end().await;
}
