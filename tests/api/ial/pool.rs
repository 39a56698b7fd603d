//! All addresses of a location, granted and released by two customers at the same time.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::{Value, json};

use super::platform::{self, Answer, Call, Platform};
use super::site::{ADDRESSES, IalSite};
use crate::support::until;

/// The time after which a call above the limit of calls is made again.
const RATE_LIMIT_INTERVAL: Duration = Duration::from_millis(200);

/// The blocks that somebody has.
#[derive(Default)]
struct Owned(RefCell<BTreeSet<String>>);

impl Owned {
    /// Adds a block from its answer on. Nobody may have it.
    fn add(&self, allocated: &Value) {
        let block = allocated["cidr"].as_str().unwrap().to_owned();
        assert!(self.0.borrow_mut().insert(block), "somebody has it: {allocated}");
    }

    /// Removes a block before the request to release it is sent.
    fn remove(&self, allocated: &Value) {
        assert!(self.0.borrow_mut().remove(allocated["cidr"].as_str().unwrap()));
    }

    fn number(&self) -> usize {
        self.0.borrow().len()
    }
}

/// A customer's machine, and the addresses that were allocated to it.
struct Tenant {
    platform: Platform,
    n: usize,
    server: String,
    allocated: Vec<Value>,
}

impl Tenant {
    /// Orders the machine, and counts the address that it boots with.
    async fn new(site: &IalSite, platform: &Platform, n: usize, owned: &Owned) -> Self {
        let server = site.provisioned_for(platform, &platform::provision(n, "kir1")).await;
        let status = platform::status(n, &server, "kir1");
        let auth = platform.call(Call::Status, &status).await.data()["auth"].clone();
        let address = auth["initial_ips"][0].as_str().unwrap();
        owned.add(&json!({"cidr": format!("{address}/32")}));
        Self { platform: platform.clone(), n, server, allocated: Vec::new() }
    }

    /// Makes a call, again while there are too many.
    async fn call(&self, call: Call, request: &Value) -> Answer {
        loop {
            let answer = self.platform.call(call, request).await;
            if answer.status != 429 {
                return answer;
            }
            tokio::time::sleep(RATE_LIMIT_INTERVAL).await;
        }
    }

    /// Allocates an address. False if none is left.
    async fn allocate(&mut self, owned: &Owned) -> bool {
        let request = platform::allocate(self.n, &self.server, "kir1");
        let answer = self.call(Call::Allocate, &request).await;
        if answer.status != 200 {
            answer.refused("422.max-exceeded", None, "nothing is left");
            return false;
        }
        let allocated = answer.data();
        owned.add(&allocated);
        self.allocated.push(allocated);
        true
    }

    async fn release_all(&mut self, owned: &Owned) {
        for allocated in std::mem::take(&mut self.allocated) {
            owned.remove(&allocated);
            let request = platform::release(self.n, &self.server, "kir1", &allocated);
            assert_eq!(self.call(Call::Release, &request).await.data(), true);
        }
    }

    /// Allocates until all addresses are granted, to one of the customers.
    async fn take_all(&mut self, owned: &Owned) {
        let all_are_granted = async || {
            while self.allocate(owned).await {}
            owned.number() == ADDRESSES
        };
        until(all_are_granted, "all addresses are granted").await;
    }
}

#[tokio::test]
async fn all_addresses_are_granted_again_after_their_hold_time_and_none_is_granted_twice() {
    let (site, owned) = (IalSite::start().await, Owned::default());
    let mut acme = Tenant::new(&site, &site.acme, 1, &owned).await;
    let mut other = Tenant::new(&site, &site.other, 2, &owned).await;
    for _ in 0..3 {
        tokio::join!(acme.take_all(&owned), other.take_all(&owned));
        assert!(!acme.allocate(&owned).await && !other.allocate(&owned).await);
        acme.release_all(&owned).await;
        other.release_all(&owned).await;
        assert_eq!(owned.number(), 2, "those with which the machines boot");
    }
    site.end().await;
}
