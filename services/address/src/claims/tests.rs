//! Claims against a list of blocks as their model.

use std::sync::Arc;

use proptest::prelude::*;
use store::memory::MemoryStore;

use super::*;
use crate::block::Family;

fn claims() -> Claims {
    Claims::new(ScopedStore::new(Arc::new(MemoryStore::default()), "address"))
}

fn holder(id: &str) -> Holder {
    Holder { noun: Holder::GRANT, id: id.into(), tenant: String::new() }
}

async fn claim(claims: &Claims, block: &str, id: &str) -> Result<(), Error> {
    let change = claims.to_claim(block.parse().unwrap(), &holder(id)).await?;
    claims.records.commit(change).await?;
    Ok(())
}

async fn free(claims: &Claims, block: Block, id: &str) {
    let change = claims.to_free(block, &holder(id)).await.unwrap();
    claims.records.commit(change).await.unwrap();
}

async fn keys(claims: &Claims) -> Vec<String> {
    let page = claims.records.store().list("", "", 10_000).await.unwrap();
    page.pairs.into_iter().map(|(key, _)| key).collect()
}

#[tokio::test]
async fn a_taken_block_is_refused_by_the_name_of_its_holder() {
    let claims = claims();
    claim(&claims, "192.0.2.64/26", "large").await.unwrap();
    claim(&claims, "192.0.2.7", "small").await.unwrap();
    for (wanted, by) in [
        ("192.0.2.64/26", "large"),
        ("192.0.2.100", "large"),
        ("192.0.2.96/27", "large"),
        ("192.0.2.0/25", "small"),
        ("192.0.2.0/24", "small"),
        ("192.0.0.0/8", "small"),
    ] {
        let error = claim(&claims, wanted, "other").await.unwrap_err().to_string();
        assert!(error.starts_with(wanted) && error.contains(by), "{error}");
    }
    claim(&claims, "192.0.2.63", "beside").await.unwrap();
    claim(&claims, "192.0.2.128/25", "beside").await.unwrap();
}

#[tokio::test]
async fn an_address_inside_a_block_of_a_chunk_above_is_refused_by_name() {
    let claims = claims();
    claim(&claims, "2001:db8::/40", "large").await.unwrap();
    for inside in ["2001:db8:1::1", "2001:db8:ff::/48", "2001:db8:1:200::/56"] {
        let error = claim(&claims, inside, "other").await.unwrap_err().to_string();
        assert!(error.contains("grant large"), "{error}");
    }
    let error = claim(&claims, "2001:db8::/32", "other").await.unwrap_err().to_string();
    assert!(error.contains("grant large"), "{error}");
    free(&claims, "2001:db8::/40".parse().unwrap(), "large").await;
    assert_eq!(keys(&claims).await, [""; 0]);
}

#[tokio::test]
async fn of_two_that_overlap_and_were_read_at_the_same_time_one_is_committed() {
    for (first, second) in [
        ("192.0.2.7", "192.0.2.0/29"),
        ("192.0.2.7", "192.0.2.0/24"),
        ("192.0.2.0/24", "192.0.2.7"),
        ("2001:db8::/33", "2001:db8::7"),
        ("2001:db8::7", "2001:db8::/33"),
    ] {
        let claims = claims();
        let read =
            async |text: &str| claims.to_claim(text.parse().unwrap(), &holder(text)).await.unwrap();
        let (one, other) = (read(first).await, read(second).await);
        claims.records.commit(one).await.unwrap();
        assert!(claims.records.commit(other).await.is_err(), "{first}, {second}");
    }
}

/// A block near others, so that they overlap often.
fn block() -> impl Strategy<Value = Block> {
    let v4 = (any::<u16>(), 17..=32u32)
        .prop_map(|(low, length)| (Family::V4, 0xc000_0000 | u128::from(low & 0x03ff), length));
    let v6 = (any::<u32>(), 40..=72u32).prop_map(|(low, length)| {
        let bits = 0x2001_0db8_u128 << 96 | u128::from(low & 0x0003_0301) << 60;
        (Family::V6, bits, length)
    });
    prop_oneof![v4, v6].prop_map(|(family, bits, length)| Block::around(family, bits, length))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]
    #[test]
    fn a_block_is_claimed_exactly_if_no_address_of_it_is(steps in prop::collection::vec((block(), any::<bool>()), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (claims, mut model) = (claims(), Vec::<Block>::new());
            for (block, frees) in steps {
                if frees && !model.is_empty() {
                    let one = model.swap_remove(usize::try_from(block.base() % model.len() as u128).unwrap());
                    free(&claims, one, &one.to_string()).await;
                    continue;
                }
                let outcome = claim(&claims, &block.to_string(), &block.to_string()).await;
                let in_the_way = model.iter().find(|it| it.span().overlaps(block.span()));
                match (outcome, in_the_way) {
                    (Ok(()), None) => model.push(block),
                    (Err(Error::Taken { by, .. }), Some(_)) => {
                        let by: Block = by.block.parse().unwrap();
                        assert!(model.contains(&by) && by.span().overlaps(block.span()));
                    }
                    (outcome, other) => panic!("{block}: {outcome:?}, but the model has {other:?}"),
                }
            }
            for block in model {
                free(&claims, block, &block.to_string()).await;
            }
            assert_eq!(keys(&claims).await, [""; 0]);
        });
    }
}
