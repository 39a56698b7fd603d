//! Claims of machines and instances, beside grants.

use std::sync::Arc;

use store::ScopedStore;
use store::memory::MemoryStore;

use super::*;
use crate::claims::Holder;

struct Bench {
    objects: ObjectClaims,
    clock: Clock,
}

impl Bench {
    fn new() -> Self {
        let clock = Clock::manual(SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000));
        let store = ScopedStore::new(Arc::new(MemoryStore::default()), "address");
        let objects = ObjectClaims::new(&Grants::new(store, clock.clone()));
        Self { objects, clock }
    }

    async fn claim(
        &self,
        holder: &pb::ClaimHolder,
        address: &str,
    ) -> Result<pb::ClaimedAddress, String> {
        let claimed = self.objects.claim(holder, &[block(address)], &[]).await;
        claimed.map(|mut all| all.remove(0)).map_err(|error| error.to_string())
    }

    async fn release(&self, holder: &pb::ClaimHolder, claimed: &pb::ClaimedAddress) {
        let (noun, id) = (&holder.noun, &holder.object_id);
        self.objects.release(noun, id, std::slice::from_ref(claimed)).await.unwrap();
    }

    /// Commits a claim of a grant.
    async fn grant(&self, block: &str, id: &str) {
        let holder = Holder { noun: Holder::GRANT, id: id.into(), tenant: String::new() };
        let claims = &self.objects.claims;
        let change = claims.to_claim(block.parse().unwrap(), &holder).await.unwrap();
        claims.records.commit(change).await.unwrap();
    }

    async fn keys(&self) -> usize {
        use store::Store as _;
        let store = self.objects.claims.records.store();
        store.list("", "", 1000).await.unwrap().pairs.len()
    }
}

fn block(text: &str) -> Block {
    text.parse().unwrap()
}

fn holder(noun: &str, id: &str, machine: &str) -> pb::ClaimHolder {
    pb::ClaimHolder {
        noun: noun.into(),
        object_id: id.into(),
        hardware_id: machine.into(),
        ..pb::ClaimHolder::default()
    }
}

#[tokio::test]
async fn of_two_objects_the_second_is_refused_by_the_name_of_the_first() {
    let bench = Bench::new();
    let (machine, instance) = (holder("hardware", "m", "m"), holder("instance", "i", "n"));
    bench.claim(&machine, "192.0.2.7").await.unwrap();
    bench.claim(&instance, "2001:db8::7").await.unwrap();
    bench.grant("192.0.2.64/29", "g").await;
    for (wanting, address, text) in [
        (&instance, "192.0.2.7", "192.0.2.7 is reserved for machine m"),
        (&holder("hardware", "n", "n"), "192.0.2.7", "192.0.2.7 is reserved for machine m"),
        (&machine, "2001:db8::7", "2001:db8::7 is an address of instance i"),
        (&machine, "192.0.2.65", "192.0.2.65 is in 192.0.2.64/29, which is granted: grant g"),
    ] {
        assert_eq!(bench.claim(wanting, address).await.unwrap_err(), text);
    }
}

#[tokio::test]
async fn a_machine_and_its_instance_share_an_address_until_both_released_it() {
    let bench = Bench::new();
    let (machine, instance) = (holder("hardware", "m", "m"), holder("instance", "i", "m"));
    bench.claim(&machine, "192.0.2.7").await.unwrap();
    let of_instance = bench.claim(&instance, "192.0.2.7").await.unwrap();
    let other = holder("instance", "j", "m");
    let refused = bench.claim(&other, "192.0.2.7").await.unwrap_err();
    assert_eq!(refused, "192.0.2.7 is an address of instance i");
    bench.release(&instance, &of_instance).await;
    let claims = bench.objects.of(&[block("192.0.2.7")]).await.unwrap();
    assert_eq!((claims[0].noun.as_str(), claims[0].sharers.len()), ("hardware", 0));
    let again = bench.claim(&machine, "192.0.2.7").await.unwrap();
    assert!(!again.is_new);
    bench.release(&machine, &again).await;
    assert_eq!(bench.keys().await, 0);
}

#[tokio::test]
async fn an_address_that_was_claimed_again_is_not_released_by_the_earlier_revision() {
    let bench = Bench::new();
    let machine = holder("hardware", "m", "m");
    let first = bench.claim(&machine, "192.0.2.7").await.unwrap();
    let second = bench.claim(&machine, "192.0.2.7").await.unwrap();
    assert!(first.is_new && !second.is_new && first.revision != second.revision);
    bench.release(&machine, &first).await;
    bench.release(&holder("hardware", "n", "n"), &second).await;
    assert_eq!(bench.objects.of(&[block("192.0.2.7")]).await.unwrap().len(), 1);
    bench.release(&machine, &second).await;
    assert_eq!(bench.keys().await, 0);
}

#[tokio::test]
async fn of_several_addresses_all_are_claimed_or_none_is() {
    let bench = Bench::new();
    let machine = holder("hardware", "m", "m");
    bench.claim(&holder("hardware", "n", "n"), "192.0.2.9").await.unwrap();
    let own = bench.claim(&machine, "192.0.2.7").await.unwrap();
    let before = bench.keys().await;
    let wanted = ["192.0.2.7", "192.0.2.8", "192.0.2.9"].map(block);
    assert!(bench.objects.claim(&machine, &wanted, &[]).await.is_err());
    assert_eq!(bench.keys().await, before);
    // The address that it had before stays its own.
    let claims = bench.objects.of(&[block(&own.address)]).await.unwrap();
    assert_eq!(claims[0].object_id, "m");
}

#[tokio::test]
async fn the_claim_of_an_object_that_has_ended_is_taken_over_once_it_is_old() {
    let bench = Bench::new();
    bench.claim(&holder("hardware", "m", "m"), "192.0.2.7").await.unwrap();
    let (other, ended) = (holder("hardware", "n", "n"), ["m".to_owned()]);
    let wanted = [block("192.0.2.7")];
    assert!(bench.objects.claim(&other, &wanted, &ended).await.is_err());
    bench.clock.advance(TAKE_OVER_AGE);
    assert!(bench.objects.claim(&other, &wanted, &[]).await.is_err());
    let of_instance = holder("instance", "i", "n");
    assert!(bench.objects.claim(&of_instance, &wanted, &ended).await.is_err());
    let taken = bench.objects.claim(&other, &wanted, &ended).await.unwrap();
    assert!(taken[0].is_new);
}

#[tokio::test]
async fn concurrent_claims_of_one_network_all_succeed_and_leave_nothing() {
    let bench = Bench::new();
    let objects = bench.objects.clone();
    let work = |n: u8| {
        let objects = objects.clone();
        tokio::spawn(async move {
            let holder = holder("hardware", &n.to_string(), &n.to_string());
            let wanted = [block(&format!("192.0.2.{n}"))];
            let claimed = objects.claim(&holder, &wanted, &[]).await.unwrap();
            objects.release("hardware", &holder.object_id, &claimed).await.unwrap();
        })
    };
    let tasks: Vec<_> = (1..=32).map(work).collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(bench.keys().await, 0);
}

#[tokio::test]
async fn concurrent_claims_of_free_addresses_share_a_commit() {
    let bench = Bench::new();
    let holders = [holder("hardware", "m", "m"), holder("hardware", "n", "n")];
    let blocks = [[block("192.0.2.7")], [block("192.0.2.8")]];
    let (first, second) = tokio::join!(
        bench.objects.claim(&holders[0], &blocks[0], &[]),
        bench.objects.claim(&holders[1], &blocks[1], &[]),
    );
    let [first, second] = [first, second].map(|claimed| claimed.unwrap().remove(0));
    assert!(first.is_new && second.is_new);
    assert_eq!(first.revision, second.revision);
    let stored = bench.objects.of(&[blocks[0][0], blocks[1][0]]).await.unwrap();
    assert!(stored.iter().all(|claim| claim.revision == first.revision), "{stored:?}");
}

#[tokio::test]
async fn a_refused_claim_takes_nothing_from_the_others_of_its_commit() {
    let bench = Bench::new();
    bench.claim(&holder("hardware", "m", "m"), "192.0.2.7").await.unwrap();
    let holders = [holder("hardware", "n", "n"), holder("hardware", "o", "o")];
    // The first address of the refused request is free.
    let blocks = [vec![block("192.0.2.6"), block("192.0.2.7")], vec![block("192.0.2.8")]];
    let (refused, claimed) = tokio::join!(
        bench.objects.claim(&holders[0], &blocks[0], &[]),
        bench.objects.claim(&holders[1], &blocks[1], &[]),
    );
    assert_eq!(refused.unwrap_err().to_string(), "192.0.2.7 is reserved for machine m");
    assert!(claimed.unwrap()[0].is_new);
    let stored = bench.objects.of(&[block("192.0.2.6"), block("192.0.2.8")]).await.unwrap();
    assert_eq!(stored.iter().map(|claim| claim.object_id.as_str()).collect::<Vec<_>>(), ["o"]);
}
